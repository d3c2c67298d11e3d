"""File owners: only the user can read kedge's own files, and other users' settings and job files don't count."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.e2e.runs import SHOWS_ITS_ENVIRONMENT as JOB
from tests.support.laptop import Laptop


def test_only_the_user_can_read_what_kedge_writes(laptop: Laptop) -> None:
    """Whatever the shell's umask; files of the machine's own processes are below, with modes as on any machine."""
    laptop.write_job((JOB % "nohup").replace("exec sleep 1000", "true"))
    laptop.kedge("launch", "--yes", "--ttl", "5m")
    ours = [path for path in laptop.state.iterdir() if path.name != "store"]
    inside = [path for folder in ours for path in folder.rglob("*") if "machines" not in path.parts]
    wide = [
        str(path)
        for path in (laptop.state, laptop.home / "kedge-results", *ours, *inside)
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert wide == []
    assert (laptop.state / "ledger.db") in ours


def test_the_modes_of_a_state_folder_are_narrowed(laptop: Laptop) -> None:
    """The next command narrows the modes of folders from an earlier kedge, or from a restored backup."""
    laptop.kedge("status")
    ledger = laptop.state / "ledger.db"
    laptop.state.chmod(0o755)
    ledger.chmod(0o644)
    laptop.runtime.chmod(0o777)
    laptop.kedge("status")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (laptop.state, ledger, laptop.runtime)]
    assert modes == [0o700, 0o600, 0o700]


def test_a_runtime_folder_that_somebody_else_created_is_refused(laptop: Laptop, tmp_path: Path) -> None:
    """Anybody can create `/tmp/kedge-UID` before kedge does: as a link, or as their own folder."""
    prepared = tmp_path / f"kedge-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    env = {"TMPDIR": str(tmp_path), "KEDGE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}
    prepared.symlink_to(elsewhere)
    laptop.kedge("status", code=2, env=env)
    assert "link" in laptop.errors
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    prepared.unlink()
    prepared.write_text("")
    laptop.kedge("status", code=2, env=env)
    prepared.unlink()
    laptop.kedge("status", env=env)
    assert stat.S_IMODE(prepared.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_a_runtime_folder_of_another_user_is_refused(laptop: Laptop, tmp_path: Path) -> None:
    """Its owner could put their own sockets into it."""
    prepared = tmp_path / f"kedge-{os.getuid()}"
    prepared.mkdir()
    os.chown(prepared, 65534, 65534)
    env = {"TMPDIR": str(tmp_path), "KEDGE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}
    laptop.kedge("status", code=2, env=env)
    assert "another user" in laptop.errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_a_runtime_folder_that_su_left_behind_is_not_used(laptop: Laptop, tmp_path: Path) -> None:
    """After `su`, XDG_RUNTIME_DIR is the other user's, who could replace files in it."""
    others = tmp_path / "others"
    others.mkdir()
    os.chown(others, 65534, 65534)
    laptop.kedge("status", env={"TMPDIR": str(tmp_path), "KEDGE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(others)})
    assert list(others.iterdir()) == []
    assert (tmp_path / f"kedge-{os.getuid()}").is_dir()


def test_a_job_file_that_others_may_write_is_not_found_from_below(laptop: Laptop) -> None:
    """A `kedge.yaml` in a parent folder, such as /tmp, decides what runs with the user's secrets."""
    below = laptop.home / "project"
    below.mkdir()
    laptop.write_job(JOB % "nohup")
    job = laptop.home / "kedge.yaml"
    job.chmod(0o666)
    argv = [*laptop.program, "plan"]

    def plan(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*argv, *words], cwd=below, env=laptop.env, capture_output=True, text=True, check=False)

    refused = plan()
    assert refused.returncode == 2
    assert "may write" in refused.stderr
    assert f"--job {job}" in refused.stderr
    assert plan("--job", str(job)).returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_a_job_file_of_another_user_is_not_found_from_below(laptop: Laptop) -> None:
    """Git does the same with repositories (safe.directory); a path to the file shows that the user means it."""
    laptop.write_job(JOB % "nohup")
    os.chown(laptop.home / "kedge.yaml", 65534, 65534)
    laptop.kedge("plan", code=2)
    assert "nobody" in laptop.errors
    laptop.kedge("plan", "--job", "./kedge.yaml")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link somebody else's")
def test_another_user_s_link_to_ones_own_job_file_is_not_found(laptop: Laptop, tmp_path: Path) -> None:
    """In a folder like /tmp, the user's own job would run with whatever data is next to the link."""
    own = tmp_path / "own.yaml"
    own.write_text("name: own\nrun: python train.py\n")
    laptop.home.chmod(0o1777)
    link = laptop.home / "kedge.yaml"
    link.symlink_to(own)
    laptop.kedge("plan")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    laptop.kedge("plan", code=2)
    assert "nobody" in laptop.errors


def user_settings(laptop: Laptop) -> Path:
    """Write settings that name a program which this computer runs to reach machines."""
    folder = laptop.home / "config"
    folder.mkdir()
    path = folder / "config.yaml"
    path.write_text("provider: {aws: {proxy_command: nc %h %p}}\n")
    laptop.extra_env["KEDGE_CONFIG"] = str(path)
    return path


@pytest.mark.parametrize("what", ["config.yaml", "."], ids=["file", "folder"])
def test_settings_that_others_may_write_are_refused(laptop: Laptop, what: str) -> None:
    """They name programs that run on this computer; once only the user can write them, they are used."""
    path = user_settings(laptop)
    (path.parent / what).chmod(0o777)
    laptop.kedge("plan", code=2)
    assert f"others may write {path}" in laptop.errors
    assert f"chmod go-w {path} {path.parent}" in laptop.errors
    path.chmod(0o600)
    path.parent.chmod(0o755)
    laptop.kedge("plan")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_settings_of_another_user_are_refused(laptop: Laptop) -> None:
    """Although KEDGE_CONFIG names them: the programs that they name run as this user."""
    path = user_settings(laptop)
    os.chown(path, 65534, 65534)
    laptop.kedge("plan", code=2)
    assert f"{path} belongs to nobody" in laptop.errors
    assert "chown" in laptop.errors
