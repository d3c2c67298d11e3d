"""Links, modes and repositories that rsync copies, in a hostile machine's results and in the laptop's data."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.sync.rsync import RsyncMover
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import DataMount
from orchestrator.core.protocol.results import ResultFile
from tests.adapters.code.conftest import Box, git
from tests.adapters.code.test_rsync import ignore

SECRET = "the laptop's own key"


@pytest.fixture
def mover(connector: SshConnector) -> RsyncMover:
    return RsyncMover(connector)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".ssh" / "id_rsa"
    path.parent.mkdir(parents=True)
    path.write_text(SECRET)
    return path


@pytest.fixture
def output(box: Box) -> Path:
    """The folder that the machine's command fills."""
    folder = box.root / "results" / "output"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def bring(mover: RsyncMover, box: Box, home: Path) -> int:
    """Fetch the results as the engine does; return how many bytes were copied."""
    moved = [0]
    listed = box.remote.run([box.machine.agent, "manifest"]).stdout
    files = msgspec.json.decode(listed, type=tuple[ResultFile, ...])
    arrival = mover.fetch(box.machine, "results", str(home), lambda done, _: moved.append(done), files=files)
    assert arrival.different == ()
    return max(moved)


@pytest.mark.parametrize(
    "links",
    [
        {"model.bin": "{secret}"},
        {"up": "../..", "model.bin": "up/../home/.ssh/id_rsa"},
        {"d1/d2/a": "n/../../..", "d1/d2/n": "../.."},
        {"x": ".", "deep/er/y": "../../x/../.."},
    ],
    ids=["absolute", "through another", "two steps", "through a link to the top"],
)
def test_no_link_that_leaves_the_results_is_fetched(
    mover: RsyncMover, box: Box, output: Path, secret: Path, tmp_path: Path, links: dict[str, str]
) -> None:
    """Whatever path the link takes. Everything else is fetched."""
    home = tmp_path / "kedge-results" / "run"
    (output / "metrics.json").write_text("{}")
    for path, target in links.items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).symlink_to(target.format(secret=secret))
    bring(mover, box, home)
    assert (home / "output/metrics.json").read_text() == "{}"
    escaped = [str(path) for path in home.rglob("*") if not path.resolve().is_relative_to(home)]
    assert escaped == []


def test_links_inside_of_the_results_are_fetched(mover: RsyncMover, box: Box, output: Path, tmp_path: Path) -> None:
    """Links to files and folders, also absolute and indirect ones, lead to the fetched copies."""
    (output / "runs/1").mkdir(parents=True)
    (output / "runs/1/a.txt").write_text("a")
    (output / "latest").symlink_to("runs/1")
    (output / "absolute").symlink_to(output / "runs/1/a.txt")
    (output / "runs/roundabout").symlink_to("1/../../latest/a.txt")
    bring(mover, box, tmp_path / "home")
    bring(mover, box, tmp_path / "home")
    home = tmp_path / "home" / "output"
    assert [(home / name).resolve() for name in ("absolute", "runs/roundabout")] == [home / "runs/1/a.txt"] * 2
    assert (home / "latest").resolve() == home / "runs/1"


@pytest.mark.parametrize("direction", ["send", "fetch"])
def test_only_permission_bits_are_copied(mover: RsyncMover, box: Box, tmp_path: Path, direction: str) -> None:
    """Not the setuid, setgid and sticky bits of files and folders."""
    source, copy = tmp_path / "set", tmp_path / "home"
    if direction == "fetch":
        source = box.root / "results"
    (source / "shared").mkdir(parents=True)
    (source / "tool").write_text("#!/bin/sh")
    (source / "tool").chmod(0o6755)
    (source / "shared").chmod(0o3777)
    if direction == "send":
        mover.send(DataMount(source=str(source), target="set"), box.machine, ignore)
        copy = box.root / "data" / "set"
    else:
        bring(mover, box, copy)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in copy.iterdir()}
    assert modes.items() >= {"tool": 0o755, "shared": 0o777}.items()


def test_no_pipe_is_fetched(mover: RsyncMover, box: Box, output: Path, tmp_path: Path) -> None:
    """Opening one would block for ever."""
    os.mkfifo(output / "pipe")
    (output / "x").write_text("x")
    bring(mover, box, tmp_path / "home")
    assert [path.name for path in (tmp_path / "home/output").iterdir()] == ["x"]


def hostile_repository(folder: Path, marker: Path) -> None:
    """Make a repository whose configuration makes git run a command."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "train.py").write_text("pass")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    git(folder, "config", "core.fsmonitor", f"touch {marker}; false")


@pytest.mark.parametrize("layout", ["a clone", "bare", "bare, at the top", "a worktree"])
def test_git_runs_nothing_from_a_fetched_repository(
    mover: RsyncMover, box: Box, output: Path, tmp_path: Path, layout: str
) -> None:
    """For each layout, `git status` with git's defaults finds no repository in the results."""
    marker, home = tmp_path / "ran", tmp_path / "home"
    repository = output / "repo"
    hostile_repository(repository, marker)
    if layout == "bare":
        (repository / ".git").rename(output / "bare")
        git(output / "bare", "config", "core.worktree", "..")
    elif layout == "bare, at the top":
        for path in (repository / ".git").iterdir():
            path.rename(box.root / "results" / path.name)
        git(box.root / "results", "config", "core.bare", "false")
        git(box.root / "results", "config", "core.worktree", ".")
    elif layout == "a worktree":
        (repository / ".git").rename(output / "elsewhere")
        (repository / ".git").write_text("gitdir: ../elsewhere\n")
    first, second = bring(mover, box, home), bring(mover, box, home)
    for folder in [home, *(path for path in home.rglob("*") if path.is_dir())]:
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert not marker.exists()
    assert first > 1000
    assert second == 0


def test_mercurial_reads_no_fetched_configuration(mover: RsyncMover, box: Box, output: Path, tmp_path: Path) -> None:
    """Two files can name programs, here or behind `sharedpath`. All other files of the repository are unchanged."""
    names = ("hgrc", "hgrc-not-shared", "requires", "sharedpath")
    for folder in (output / "repo/.hg", output / "elsewhere"):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(name)
    (output / "repo/HGRC").mkdir()
    (output / "repo/HGRC/linked").symlink_to("../.hg/hgrc")
    first, second = bring(mover, box, tmp_path / "home"), bring(mover, box, tmp_path / "home")
    home = tmp_path / "home/output"
    for folder in (home / "repo/.hg", home / "elsewhere"):
        there = {path.name: path.read_text() for path in folder.iterdir()}
        assert there == {f"{name}.kedge-renamed" if "hgrc" in name else name: name for name in names}
    assert (home / "repo/HGRC/linked").read_text() == "hgrc"
    assert first > 0
    assert second == 0


def test_a_fetched_repository_can_be_restored(mover: RsyncMover, box: Box, output: Path, tmp_path: Path) -> None:
    """Nothing of it is lost: renaming HEAD back makes it a repository again."""
    hostile_repository(output / "repo", tmp_path / "ran")
    git(output / "repo", "config", "--unset", "core.fsmonitor")
    bring(mover, box, tmp_path / "home")
    dot_git = tmp_path / "home/output/repo/.git"
    (dot_git / "HEAD.kedge-renamed").rename(dot_git / "HEAD")
    git(dot_git.parent, "fsck", "--strict")
    git(dot_git.parent, "diff", "--exit-code", "HEAD")


def test_a_key_that_a_link_in_the_results_names_never_reaches_the_next_machine(
    mover: RsyncMover, box: Box, output: Path, secret: Path, tmp_path: Path
) -> None:
    """The whole attack: a hostile machine's results are fetched, and are the next job's data."""
    home = tmp_path / "home"
    (output / "model.bin").symlink_to(secret)
    (output / "real.bin").write_text("weights")
    bring(mover, box, home)
    mover.send(DataMount(source=str(home / "output"), target="in"), box.machine, ignore)
    assert {path.name: path.read_text() for path in (box.root / "data/in").iterdir()} == {"real.bin": "weights"}


@pytest.mark.parametrize("target", ["{secret}", "up/../home/.ssh/id_rsa", "../home/.ssh", "../nowhere"])
def test_data_with_a_link_that_leaves_it_is_not_sent(
    mover: RsyncMover, box: Box, secret: Path, tmp_path: Path, target: str
) -> None:
    """An untrusted repository may contain any link."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/up").symlink_to(".")
    (tmp_path / "set/x").symlink_to(target.format(secret=secret))
    with pytest.raises(BadRequestError, match="leaves it"):
        mover.send(DataMount(source=str(tmp_path / "set"), target="in"), box.machine, ignore)
    assert not (box.root / "data/in").exists()


def repository_with_program(folder: Path, ran: Path) -> Path:
    """Make a folder that git takes for a repository, and whose configuration names a program."""
    git(folder.parent, "init", "-q", "--bare", str(folder))
    for name, value in {"fsmonitor": f"touch '{ran}'; false", "bare": "false", "worktree": ".."}.items():
        git(folder, "config", f"core.{name}", value)
    return folder


@pytest.mark.parametrize("exit_code", [0, 23])
def test_a_folder_that_replaces_a_listed_file_brings_no_repository(
    connector: SshConnector, box: Box, output: Path, tmp_path: Path, exit_code: int
) -> None:
    """The machine lists a file HEAD, and replaces it by a folder before that file is copied separately."""
    (output / "x").mkdir()
    (output / "x" / "HEAD").write_text("a result\n")
    ran, evil, home = tmp_path / "ran", repository_with_program(box.root / "evil", tmp_path / "ran"), tmp_path / "home"
    rsync = tmp_path / "hostile-rsync"
    rsync.write_text(
        f'#!/bin/sh\nif [ -e "{tmp_path}/once" ]; then rm -rf "{output}/x/HEAD"; cp -r "{evil}" "{output}/x/HEAD"; '
        f'rsync "$@"; exit {exit_code}; fi\ntouch "{tmp_path}/once"\nexec rsync "$@"\n'
    )
    rsync.chmod(0o755)
    with contextlib.suppress(KedgeError, AssertionError):
        bring(RsyncMover(connector, remote_program=str(rsync)), box, home)
    for folder, _, _ in os.walk(home):
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert (home / "output/x").is_dir()
    assert not ran.exists()


def test_a_failed_copy_leaves_no_repository(connector: SshConnector, box: Box, output: Path, tmp_path: Path) -> None:
    """Files of an earlier fetch, or of a sender that ignores the filter, are renamed even after a failure."""
    home = tmp_path / "home"
    home.mkdir()
    ran = tmp_path / "ran"
    repository_with_program(home / "repo", ran)
    rsync = tmp_path / "hostile-rsync"
    rsync.write_text("#!/bin/sh\nexit 12\n")
    rsync.chmod(0o755)
    with pytest.raises(KedgeError):
        bring(RsyncMover(connector, remote_program=str(rsync)), box, home)
    subprocess.run(["git", "status"], cwd=home / "repo", capture_output=True, check=False)
    assert not ran.exists()


def test_modes_of_fetched_folders_do_not_lock_the_user_out(
    mover: RsyncMover, box: Box, output: Path, tmp_path: Path
) -> None:
    """A folder without permissions gets those of its owner, so that all of it can be read and deleted."""
    (output / "closed").mkdir()
    (output / "closed" / "weights").write_text("1")
    (output / "closed" / "weights").chmod(0)
    (output / "closed").chmod(0)
    home = tmp_path / "home"
    mover.fetch(box.machine, "results", str(home), ignore)
    assert stat.S_IMODE((home / "output/closed").stat().st_mode) & 0o700 == 0o700
    assert stat.S_IMODE((home / "output/closed/weights").stat().st_mode) & 0o600 == 0o600
