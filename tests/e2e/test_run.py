"""Commands on an existing run: status, exec, sync, stop, start, fetch."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from tests.e2e.runs import JOB, await_running, log, step
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


def test_status_shows_what_machine_and_ledger_know(laptop: Laptop, run: str) -> None:
    """State, cost, load and deadline, for people and for scripts."""
    status = laptop.json("status")[0]
    assert (status["run"], status["state"], status["findings"]) == (run, "running", [])
    assert status["report"]["machine"] == f"{run}-m1"
    assert float(status["spent_usd"]) > 0
    assert "running" in laptop.kedge("status", run)
    assert re.search(rf"{run}.*running", laptop.kedge("cost"))


def test_arguments_after_two_dashes_reach_the_machine_unchanged(laptop: Laptop, run: str) -> None:
    """Flags, spaces and quotes belong to that command, and its exit code is kedge's."""
    assert (
        laptop.kedge("exec", run, "--", "printf", "%s|", "--json", "a b", "it's", "$HOME") == "--json|a b|it's|$HOME|"
    )
    laptop.kedge("exec", "--", "sh", "-c", "exit 9", code=9)


def test_shells_on_the_machine_find_the_python_of_the_run(laptop: Laptop) -> None:
    """`exec` and `ssh` find the same as `setup` and `run`, though a login shell's own files set another PATH."""
    show = "command -v python && command -v kedge-cost"
    laptop.write_job((JOB % "nohup").replace("python train.py", f"{show} && exec python train.py"))
    laptop.kedge("launch", "--yes", "--detach")
    wait_until(lambda: "step 1" in log(laptop))
    found = [line.split()[-1] for line in laptop.kedge("logs", "--lines", "1000").splitlines() if "/bin/" in line]
    assert len(found) == 2
    assert laptop.kedge("exec", "--", "sh", "-c", show).split() == found
    shell = subprocess.run(
        [*laptop.program, "ssh"],
        input=f"echo shown; {show}\n",
        env=laptop.env,
        cwd=laptop.home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.partition("shown\n")[2].split() == found
    laptop.kedge("teardown", "--yes")


def test_plain_ssh_reaches_a_run_by_its_name(laptop: Laptop, run: str) -> None:
    """After `ssh-config --install`, the OpenSSH client needs only the run's name."""
    laptop.kedge("ssh-config", "--install")
    done = subprocess.run(
        ["ssh", "-F", str(laptop.home / "ssh_config"), run, "echo", "there"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == "there\n"


def test_kedge_cost_on_the_machine_counts_from_creation(laptop: Laptop, run: str) -> None:
    """The machine itself prints the session line."""
    assert laptop.kedge("exec", "--", "kedge-cost").startswith("Session: 0.0h elapsed, ~$0.0")


def test_logs_can_be_read_and_followed(laptop: Laptop, run: str) -> None:
    """`logs` prints the newest lines, `logs -f` follows."""
    wait_until(lambda: "step 2" in log(laptop))
    assert len(laptop.kedge("logs", run, "-n", "2").splitlines()) == 2
    follower = laptop.start("logs", "-f", "--lines", "1")
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(4)]
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=120)
    numbers = [int(line.split("step ")[1].split()[0]) for line in seen if "step " in line]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_new_code_restarts_the_command_from_its_checkpoint(laptop: Laptop, run: str) -> None:
    """Deleted files vanish, changed ones arrive, the run resumes; unchanged code isn't sent."""
    (laptop.home / "extra.py").write_text("x = 1")
    laptop.kedge("sync-code")
    assert laptop.kedge("exec", "--", "ls", "extra.py")
    wait_until(lambda: step(laptop) > 2)
    (laptop.home / "extra.py").unlink()
    script = (laptop.home / "train.py").read_text()
    (laptop.home / "train.py").write_text(script.replace("step {step} of", "new step {step} of"))
    laptop.kedge("sync-code", "--restart")
    laptop.kedge("exec", "--", "ls", "extra.py", code=2)
    wait_until(lambda: "new step" in log(laptop))
    said = laptop.kedge("logs", "--lines", "100000")
    assert said.count("a fresh start") == 1
    assert "going on from step" in said


def test_a_stopped_run_keeps_its_machine_and_starts_again(laptop: Laptop, run: str) -> None:
    """Stop -> stopped, whatever the exit code; start -> on from the checkpoint; stop --now needs a yes."""
    wait_until(lambda: step(laptop) > 1)
    said = laptop.kedge("stop")
    assert f"Run {run}: stopped" in said
    assert f"go on:     kedge start {run}" in said
    assert laptop.json("status")[0]["state"] == "stopped"
    laptop.kedge("start")
    await_running(laptop)
    assert laptop.json("status")[0]["state"] == "running"
    for rehearsed in (laptop.kedge("stop", "--now", "--dry-run"), laptop.kedge("stop", "--now", code=2)):
        assert "kill the command: at once, without a checkpoint" in rehearsed
        assert "it checkpoints" not in rehearsed
    assert laptop.json("status")[0]["state"] == "running"
    laptop.kedge("stop", "--now", "--yes")
    assert laptop.json("status", "--ledger")[0]["state"] == "stopped"
    assert laptop.json("status")[0]["state"] == "stopped"


def test_results_can_be_fetched_while_the_command_runs(laptop: Laptop, run: str) -> None:
    """A live run's files change during the copy: every fetched file is complete anyway."""
    wait_until(lambda: step(laptop) > 3)
    laptop.kedge("fetch", "--to", "here")
    lines = (laptop.home / "here" / "output" / "results" / "steps.log").read_text().splitlines()
    assert lines[0] == f"1 {run}"


def test_two_live_runs_must_be_named(laptop: Laptop, run: str) -> None:
    """A command never guesses which run it acts on; a unique prefix of the name is enough."""
    other = laptop.json("launch", "--yes", "--detach")["run"]
    laptop.kedge("stop", code=2)
    assert run in laptop.errors
    assert other in laptop.errors
    laptop.kedge("teardown", other[:-1], "--yes")
    laptop.kedge("stop")


def test_data_goes_to_the_machine(laptop: Laptop) -> None:
    """A data folder is where the command expects it, and sync-data sends added files."""
    (laptop.home / "images").mkdir()
    (laptop.home / "images" / "one two.txt").write_text("1")
    laptop.write_job((JOB % "nohup") + "    data: [{source: images, target: input/images}]\n")
    laptop.json("launch", "--yes", "--detach")
    assert laptop.kedge("exec", "--", "cat", "input/images/one two.txt") == "1"
    (laptop.home / "images" / "two").write_text("2")
    laptop.kedge("sync-data")
    assert laptop.kedge("exec", "--", "cat", "input/images/two") == "2"


def test_secrets_reach_the_command_and_nothing_else(laptop: Laptop) -> None:
    """The value is in the command's environment, and in no ledger, plan or log."""
    laptop.extra_env["TOKEN"] = "hunter2-very-secret"
    laptop.write_job("""
        name: secretive
        run: test "${#TOKEN}" = 19 && echo got it
        secrets: {TOKEN: null}
        supervisor: {kind: nohup, restarts: 0}
    """)
    said = laptop.kedge("launch", "--yes", "--keep")
    assert "got it" in said
    assert "hunter2" not in said + laptop.errors
    holding = []
    for parent, _folders, names in os.walk(laptop.state):
        for path in (Path(parent, name) for name in names):
            # The machine replaces its files.
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and b"hunter2" in path.read_bytes():
                    holding.append(path)
    assert [path.name for path in holding] == ["secrets.json"]
    assert Path(holding[0]).stat().st_mode & 0o077 == 0


def test_a_changed_job_file_is_reported(laptop: Laptop, run: str) -> None:
    """A run keeps the job from its launch; whoever edits the file gets a note."""
    laptop.write_job((JOB % "nohup") + "    setup: echo new\n")
    assert "has changed since the launch" in laptop.kedge("start")
