"""The shell's secrets stay in it: neither processes that outlive a command nor kedge's files get them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import SHOWS_ITS_ENVIRONMENT as JOB
from tests.e2e.runs import send_if_there, state
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

TOKEN = f"kedge-marker-cloud-token-{os.getpid()}"
"""Different for each worker: other workers run this module's tests at the same time."""
OTHER = "kedge-marker-inherited"
SHELL = {
    "AWS_SECRET_ACCESS_KEY": TOKEN,
    "DIGITALOCEAN_ACCESS_TOKEN": TOKEN,
    "AMD_DEVCLOUD_TOKEN": TOKEN,
    "LAMBDA_API_KEY": TOKEN,
    "KEDGE_DIGITALOCEAN_DELETE_TOKEN": TOKEN,
    "GITHUB_TOKEN": TOKEN,
    "SSH_AUTH_SOCK": f"/{TOKEN}",
}


@pytest.fixture
def shell(laptop: Laptop) -> Laptop:
    """A laptop whose shell has the tokens of several clouds."""
    laptop.extra_env.update(SHELL)
    return laptop


def holders(text: str) -> list[str]:
    """List the processes of this computer that have a text in their environment or arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if text in " ".join([*process.environ().values(), *process.cmdline()]):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def files_with(folder: Path, text: str) -> set[str]:
    """List the files below a folder that contain a text, by name; files come and go meanwhile.

    The store's blobs are copies of the machine's results, which are below the folder too.
    """
    found = set()
    for parent, _folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in names if Path(parent).name != "blobs"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes():
                    found.add(path.name)
    return found


def is_runner(process: psutil.Process) -> bool:
    """Tell whether a process is the command's runner; others come and go."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()[-1:] == ["run"]
    return False


def test_a_run_restarted_by_its_watch_has_no_token_of_the_shell(shell: Laptop) -> None:
    """The runner is killed, as by the kernel's OOM killer: its replacement has no token to pass on."""
    shell.write_job(JOB % "nohup")
    run = str(shell.json("launch", "--yes", "--detach")["run"])
    results = shell.state / "machines" / f"{run}-m1" / "results" / "output"
    wait_until((results / "starts.txt").exists)
    runners = [process for process in shell.processes() if is_runner(process)]
    assert runners
    for runner in runners:
        send_if_there(runner, signal.SIGKILL)
    wait_until(lambda: (results / "starts.txt").read_text().count("start") == 2)
    seen = (results / "env.txt").read_text()
    assert len(re.findall("^KEDGE_RUN_ID=", seen, re.MULTILINE)) == 2
    assert TOKEN not in seen


@pytest.mark.parametrize("supervisor", ["nohup", "tmux"])
def test_processes_that_outlive_a_command_have_no_token_of_the_shell(shell: Laptop, supervisor: str) -> None:
    """Init, sshd, watch, runner and job, read from the kernel while the SSH connection is kept open."""
    shell.write_job(JOB % supervisor)
    shell.kedge("launch", "--yes", "--detach")
    shell.kedge("exec", "--", "true")
    assert holders(str(shell.runtime / "ssh"))
    assert holders(TOKEN) == []


def test_ssh_and_rsync_are_given_no_token_of_the_shell(shell: Laptop, tmp_path: Path) -> None:
    """Each records its environment at its start: a kept connection overwrites what the kernel shows of it."""
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


def test_an_inherited_value_is_stored_like_a_secret(laptop: Laptop) -> None:
    """`null` takes the shell's value: the command gets it, and neither the ledger nor run.json has it."""
    laptop.extra_env["WANDB_API_KEY"] = OTHER
    laptop.write_job((JOB % "nohup") + "    envs: {WANDB_API_KEY: null, PLAIN: kedge-marker-literal}\n")
    shown = laptop.kedge("plan")
    assert OTHER not in shown
    assert OTHER not in laptop.kedge("plan", "--json")
    run = str(laptop.json("launch", "--yes", "--detach")["run"])
    machine = laptop.state / "machines" / f"{run}-m1"
    # The shell makes env.txt before `env` writes it, and starts.txt afterwards.
    wait_until((machine / "results/output/starts.txt").exists)
    assert f"WANDB_API_KEY={OTHER}\n" in (machine / "results/output/env.txt").read_text()
    assert files_with(laptop.state, OTHER) == {"secrets.json", "env.txt"}
    assert stat.S_IMODE((machine / "secrets.json").stat().st_mode) == 0o600


def test_a_variable_given_by_name_is_stored_like_an_inherited_one(laptop: Laptop) -> None:
    """`--env NAME` takes the shell's value too; the value in `--env NAME=value` is in the shell's history anyway."""
    laptop.extra_env["WANDB_API_KEY"] = OTHER
    laptop.write_job(JOB % "nohup")
    laptop.kedge("launch", "--yes", "--detach", "--env", "WANDB_API_KEY", "--env", "A=kedge-marker-given")
    wait_until(lambda: files_with(laptop.state, OTHER) == {"secrets.json", "env.txt"})
    assert "ledger.db-wal" in files_with(laptop.state, "kedge-marker-given")


def test_a_restart_from_a_shell_without_the_variable_is_refused_before_the_stop(laptop: Laptop) -> None:
    """Its value isn't recorded: the error comes before the command is asked to stop."""
    laptop.write_job((JOB % "nohup") + "    workdir: .\n    envs: {WANDB_API_KEY: null}\n")
    laptop.kedge("launch", "--yes", "--detach", env={"WANDB_API_KEY": OTHER})
    wait_until(lambda: state(laptop) == "running")
    laptop.kedge("sync-code", "--restart", code=2)
    assert "WANDB_API_KEY" in laptop.errors
    assert laptop.json("status")[0]["state"] == "running"
    laptop.kedge("stop")
    laptop.kedge("start", code=2)
    assert "WANDB_API_KEY" in laptop.errors


def test_the_plan_names_everything_that_a_job_gets(laptop: Laptop) -> None:
    """Secrets and inherited variables by name, outputs, and the same for scripts."""
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
        "tasks": [],
        "outputs": ["results"],
        "checkpoints": "ckpt",
        "jump_host": "",
        "proxy_command": "",
    }


@pytest.mark.parametrize("how", ["secrets: [%s]", "envs: {%s: null}"])
def test_a_job_is_not_given_kedges_own_credentials(shell: Laptop, how: str) -> None:
    """Tokens that rent machines are given to a job only by a flag of the user's, not by its repository."""
    name = "DIGITALOCEAN_ACCESS_TOKEN"
    shell.write_job((JOB % "nohup") + f"    {how % name}\n")
    shell.kedge("plan", code=2)
    assert name in shell.errors
    assert f"--allow-secret {name}" in shell.errors
    assert TOKEN not in shell.errors
    shown = shell.kedge("plan", "--allow-secret", name)
    assert name in shown
    assert TOKEN not in shown


def test_a_job_does_not_choose_programs_that_run_on_this_computer(laptop: Laptop) -> None:
    """A command that connects to the machine would run as the user: only settings, or a flag, may allow one."""
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
