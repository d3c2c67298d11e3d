"""What the user's shell holds stays in it: neither processes that outlive a command nor kedge's files get it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.laptop import Laptop
from tests.waiting import wait_until

TOKEN = "kedge-marker-cloud-token"
OTHER = "kedge-marker-inherited"
SHELL = {
    "AWS_SECRET_ACCESS_KEY": TOKEN,
    "DIGITALOCEAN_ACCESS_TOKEN": TOKEN,
    "AMD_DEVCLOUD_TOKEN": TOKEN,
    "KEDGE_DIGITALOCEAN_DELETE_TOKEN": TOKEN,
    "GITHUB_TOKEN": TOKEN,
    "SSH_AUTH_SOCK": f"/{TOKEN}",
}
JOB = """
    name: toy
    run: |
      env >> $KEDGE_OUTPUT_DIR/env.txt
      echo start $KEDGE_RUN_ID >> $KEDGE_OUTPUT_DIR/starts.txt
      exec sleep 1000
    deadline: 10m
    supervisor: {kind: %s, restarts: 3}
"""


@pytest.fixture
def shell(laptop: Laptop) -> Laptop:
    """A laptop whose shell holds the tokens of several clouds."""
    laptop.extra_env.update(SHELL)
    return laptop


def holders(text: str) -> list[str]:
    """Name every process of this computer that has a text in its environment or its arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if text in " ".join([*process.environ().values(), *process.cmdline()]):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def files_with(folder: Path, text: str) -> set[str]:
    """Name the files below a folder that hold a text, by their own names."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.name for path in files if text.encode() in path.read_bytes()}


def test_a_run_that_its_watch_starts_again_finds_no_token_of_the_shell(shell: Laptop) -> None:
    """The runner is killed, as by the kernel's OOM killer: who starts the job again has nothing to give away."""
    shell.write_job(JOB % "nohup")
    run = str(shell.json("launch", "--yes", "--detach")["run"])
    results = shell.state / "machines" / f"{run}-m1" / "results" / "output"
    wait_until((results / "starts.txt").exists)
    runners = [process for process in shell.processes() if process.cmdline()[-1:] == ["run"]]
    assert runners
    for runner in runners:
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: (results / "starts.txt").read_text().count("start") == 2)
    seen = (results / "env.txt").read_text()
    assert len(re.findall("^KEDGE_RUN_ID=", seen, re.MULTILINE)) == 2
    assert TOKEN not in seen


@pytest.mark.parametrize("supervisor", ["nohup", "tmux"])
def test_what_outlives_a_command_has_no_token_of_the_shell(shell: Laptop, supervisor: str) -> None:
    """Init, sshd, watch, runner and job, read from the kernel while the SSH connection is kept open."""
    shell.write_job(JOB % supervisor)
    shell.kedge("launch", "--yes", "--detach")
    shell.kedge("exec", "--", "true")
    assert holders(str(shell.runtime / "ssh"))
    assert holders(TOKEN) == []


def test_ssh_and_rsync_are_given_no_token_of_the_shell(shell: Laptop, tmp_path: Path) -> None:
    """Each writes down what it was given when it starts: a kept connection overwrites what the kernel shows of it."""
    seen, programs = tmp_path / "seen", tmp_path / "bin"
    programs.mkdir()
    for name in ("ssh", "rsync"):
        real = shutil.which(name)
        (programs / name).write_text(f'#!/bin/sh\n{{ echo {name} "$@"; env; }} >>\'{seen}\'\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    shell.extra_env["PATH"] = f"{programs}:{os.environ['PATH']}"
    shell.write_job((JOB % "nohup").replace("exec sleep 1000", "true"))
    shell.kedge("launch", "--yes", "--keep")
    shell.kedge("exec", "--", "true")
    text = seen.read_text()
    assert "ssh -F none -T -o ControlMaster=auto" in text
    assert re.search("^rsync --archive", text, re.MULTILINE)
    assert TOKEN not in text


def test_an_inherited_value_is_kept_where_secrets_are_and_nowhere_else(laptop: Laptop) -> None:
    """`null` takes the shell's value: the command gets it, and neither the ledger nor run.json has it."""
    laptop.extra_env["WANDB_API_KEY"] = OTHER
    laptop.write_job((JOB % "nohup") + "    envs: {WANDB_API_KEY: null, PLAIN: kedge-marker-literal}\n")
    shown = laptop.kedge("plan")
    assert OTHER not in shown
    assert OTHER not in laptop.kedge("plan", "--json")
    run = str(laptop.json("launch", "--yes", "--detach")["run"])
    machine = laptop.state / "machines" / f"{run}-m1"
    wait_until((machine / "results/output/env.txt").exists)
    assert f"WANDB_API_KEY={OTHER}\n" in (machine / "results/output/env.txt").read_text()
    assert files_with(laptop.state, OTHER) == {"secrets.json", "env.txt"}
    assert stat.S_IMODE((machine / "secrets.json").stat().st_mode) == 0o600


def test_a_variable_given_by_name_is_kept_as_an_inherited_one(laptop: Laptop) -> None:
    """`--env NAME` takes the shell's value too; `--env NAME=value` is in the shell's history already."""
    laptop.extra_env["WANDB_API_KEY"] = OTHER
    laptop.write_job(JOB % "nohup")
    laptop.kedge("launch", "--yes", "--detach", "--env", "WANDB_API_KEY", "--env", "A=kedge-marker-given")
    wait_until(lambda: files_with(laptop.state, OTHER) == {"secrets.json", "env.txt"})
    assert "ledger.db-wal" in files_with(laptop.state, "kedge-marker-given")


def test_a_restart_from_a_shell_without_the_variable_stops_nothing(laptop: Laptop) -> None:
    """Its value isn't recorded: that it is missing is said before the command is asked to stop."""
    laptop.write_job((JOB % "nohup") + "    workdir: .\n    envs: {WANDB_API_KEY: null}\n")
    laptop.kedge("launch", "--yes", "--detach", env={"WANDB_API_KEY": OTHER})
    wait_until(lambda: laptop.json("status")[0]["state"] == "running")
    laptop.kedge("sync-code", "--restart", code=2)
    assert "WANDB_API_KEY" in laptop.errors
    assert laptop.json("status")[0]["state"] == "running"
    laptop.kedge("stop")
    laptop.kedge("start", code=2)
    assert "WANDB_API_KEY" in laptop.errors


def test_the_plan_names_all_that_a_job_takes(laptop: Laptop) -> None:
    """Secrets and inherited variables by name, outputs, and what it takes for scripts."""
    laptop.extra_env.update(HF_TOKEN=TOKEN, WANDB_API_KEY=OTHER)
    laptop.write_job(
        (JOB % "nohup") + "    envs: {WANDB_API_KEY: null}\n    secrets: [HF_TOKEN]\n"
        "    outputs: [results]\n    checkpoints: ckpt\n"
    )
    shown = laptop.kedge("plan")
    assert "secrets: HF_TOKEN" in shown
    assert "from this shell: WANDB_API_KEY" in shown
    assert "outputs: results, ckpt" in shown
    takes = laptop.json("plan")["takes"]
    assert takes.pop("python").startswith(takes.pop("overlaid")["version"])
    assert takes == {
        "setup": "",
        "secrets": ["HF_TOKEN"],
        "inherited": ["WANDB_API_KEY"],
        "volumes": [],
        "outputs": ["results"],
        "checkpoints": "ckpt",
        "jump_host": "",
        "proxy_command": "",
    }


@pytest.mark.parametrize("how", ["secrets: [%s]", "envs: {%s: null}"])
def test_a_job_is_not_given_kedges_own_credentials(shell: Laptop, how: str) -> None:
    """A repository that asks for the tokens with which machines are rented gets them by a flag of the user's only."""
    name = "DIGITALOCEAN_ACCESS_TOKEN"
    shell.write_job((JOB % "nohup") + f"    {how % name}\n")
    shell.kedge("plan", code=2)
    assert name in shell.errors
    assert f"--allow-secret {name}" in shell.errors
    assert TOKEN not in shell.errors
    shown = shell.kedge("plan", "--allow-secret", name)
    assert name in shown
    assert TOKEN not in shown


def test_a_job_does_not_say_what_this_computer_runs(laptop: Laptop) -> None:
    """A command that leads to the machine would run as the user: settings name one, or a flag allows it."""
    block = "provider: {aws: {proxy_command: touch ran; nc %h %p}}"
    laptop.write_job((JOB % "nohup") + f"    {block}\n")
    for words in (("plan",), ("launch", "--yes", "--detach")):
        laptop.kedge(*words, code=2)
        assert "touch ran" in laptop.errors
        assert "--allow-proxy-command" in laptop.errors
    laptop.kedge("plan", "--allow-proxy-command")
    laptop.extra_env["KEDGE_CONFIG"] = str(laptop.home / "config.yaml")
    (laptop.home / "config.yaml").write_text(f"{block}\n")
    laptop.kedge("plan")


def test_what_kedge_writes_is_the_users_alone(laptop: Laptop) -> None:
    """Whatever the shell's umask; what the machine's own processes write lies within, with modes as on any machine."""
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


def test_a_state_folder_that_is_too_wide_is_mended(laptop: Laptop) -> None:
    """Folders of an earlier kedge, or of a backup that was unpacked, are narrowed by the next command."""
    laptop.kedge("status")
    ledger = laptop.state / "ledger.db"
    laptop.state.chmod(0o755)
    ledger.chmod(0o644)
    laptop.runtime.chmod(0o777)
    laptop.kedge("status")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (laptop.state, ledger, laptop.runtime)]
    assert modes == [0o700, 0o600, 0o700]


def test_a_runtime_folder_that_somebody_else_prepared_is_refused(laptop: Laptop, tmp_path: Path) -> None:
    """`/tmp/kedge-UID` can be made by anybody before kedge comes: as a link, or as a folder of their own."""
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
def test_a_runtime_folder_of_somebody_elses_is_refused(laptop: Laptop, tmp_path: Path) -> None:
    """Its owner could put sockets of their own into it."""
    prepared = tmp_path / f"kedge-{os.getuid()}"
    prepared.mkdir()
    os.chown(prepared, 65534, 65534)
    env = {"TMPDIR": str(tmp_path), "KEDGE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}
    laptop.kedge("status", code=2, env=env)
    assert "somebody else" in laptop.errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_a_runtime_folder_that_su_left_behind_is_not_used(laptop: Laptop, tmp_path: Path) -> None:
    """After `su`, XDG_RUNTIME_DIR is the other user's, who could exchange what lies in it."""
    others = tmp_path / "others"
    others.mkdir()
    os.chown(others, 65534, 65534)
    laptop.kedge("status", env={"TMPDIR": str(tmp_path), "KEDGE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(others)})
    assert list(others.iterdir()) == []
    assert (tmp_path / f"kedge-{os.getuid()}").is_dir()


def test_a_job_file_that_others_may_write_is_not_found_from_below(laptop: Laptop) -> None:
    """A `kedge.yaml` left in a parent folder, such as /tmp, says what runs with the user's secrets."""
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
def test_a_job_file_of_another_users_is_not_found_from_below(laptop: Laptop) -> None:
    """As git does with repositories (safe.directory); naming the file says that it is meant."""
    laptop.write_job(JOB % "nohup")
    os.chown(laptop.home / "kedge.yaml", 65534, 65534)
    laptop.kedge("plan", code=2)
    assert "nobody" in laptop.errors
    laptop.kedge("plan", "--job", "./kedge.yaml")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link somebody else's")
def test_a_link_of_another_users_to_a_job_file_of_ones_own_is_not_found(laptop: Laptop, tmp_path: Path) -> None:
    """In a folder like /tmp it would have the user's own job run with whatever data lies beside the link."""
    own = tmp_path / "own.yaml"
    own.write_text("name: own\nrun: python train.py\n")
    laptop.home.chmod(0o1777)
    link = laptop.home / "kedge.yaml"
    link.symlink_to(own)
    laptop.kedge("plan")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    laptop.kedge("plan", code=2)
    assert "nobody" in laptop.errors


def settings_of_the_users(laptop: Laptop) -> Path:
    """Write settings that name what this computer runs to reach machines."""
    folder = laptop.home / "config"
    folder.mkdir()
    path = folder / "config.yaml"
    path.write_text("provider: {aws: {proxy_command: nc %h %p}}\n")
    laptop.extra_env["KEDGE_CONFIG"] = str(path)
    return path


@pytest.mark.parametrize("what", ["config.yaml", "."], ids=["file", "folder"])
def test_settings_that_others_may_write_are_not_taken(laptop: Laptop, what: str) -> None:
    """They name what runs on this computer; once they are the user's alone, they are taken."""
    path = settings_of_the_users(laptop)
    (path.parent / what).chmod(0o777)
    laptop.kedge("plan", code=2)
    assert f"others may write {path}" in laptop.errors
    assert f"chmod go-w {path} {path.parent}" in laptop.errors
    path.chmod(0o600)
    path.parent.chmod(0o755)
    laptop.kedge("plan")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file somebody else's")
def test_settings_of_another_users_are_not_taken(laptop: Laptop) -> None:
    """Though KEDGE_CONFIG names them: what they say runs as this user."""
    path = settings_of_the_users(laptop)
    os.chown(path, 65534, 65534)
    laptop.kedge("plan", code=2)
    assert f"{path} belongs to nobody" in laptop.errors
    assert "chown" in laptop.errors
