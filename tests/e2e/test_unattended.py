"""Runs that nobody follows: what commands report when the user comes back."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.e2e.runs import kill_machine, log, state
from tests.e2e.test_launch import JOB
from tests.support.laptop import Laptop
from tests.support.terminals import on_terminal
from tests.support.waiting import wait_until

ENDLESS = JOB.replace("grace: 5s", "grace: 1s") + "    envs: {STEPS: 100000}\n"


def test_the_results_of_a_finished_run_wait_for_a_fetch(laptop: Laptop) -> None:
    """While its machine lingers, and after it has ended; `fetch` alone takes the newest run with results."""
    laptop.write_job(JOB.replace("deadline: 10m", "deadline: 30s").replace("grace: 5s", "grace: 1s"))
    older, run = (laptop.json("launch", "--yes", "--detach")["run"] for _ in range(2))
    wait_until(lambda: [each["state"] for each in laptop.json("status")] == ["succeeded", "succeeded"])
    wait_until(lambda: not laptop.processes())
    said = laptop.kedge("status")
    assert f"{run}: done; results wait: kedge fetch {run}" in said
    assert [each["results_wait"] for each in laptop.json("status")] == [True, True]
    laptop.kedge("fetch")
    assert f"run {run} is the newest one here that has results" in laptop.errors
    assert (laptop.home / "kedge-results" / run / "output" / "results" / "model.txt").is_file()
    assert [each["run"] for each in laptop.json("status")] == [older]
    laptop.kedge("fetch", older)
    said = laptop.kedge("status")
    assert "No live run" in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_a_copy_made_while_the_command_runs_is_not_the_last_one(laptop: Laptop) -> None:
    """A fetch during the run leaves the last files for another fetch; a teardown without results gives them up."""
    enough = laptop.home / "enough"
    waits = f"python train.py && until test -e '{enough}'; do sleep 0.2; done"
    laptop.write_job(JOB.replace("grace: 5s", "grace: 1s").replace("python train.py", f'"{waits}"'))
    laptop.json("launch", "--yes", "--detach")
    wait_until(lambda: "step 2" in log(laptop))
    assert "; the command is still at work)" in laptop.kedge("fetch")
    enough.touch()
    wait_until(lambda: state(laptop) == "succeeded")
    assert "done; results wait" in laptop.kedge("status")
    laptop.kedge("teardown", "--yes", "--no-fetch")
    assert laptop.json("status") == []


@pytest.mark.parametrize(
    ("command", "missing"), [("stop", "live run"), ("fetch", "run"), ("logs", "run"), ("teardown", "run")]
)
def test_in_a_folder_without_runs_the_error_names_what_is_missing(laptop: Laptop, command: str, missing: str) -> None:
    """An ended run would do for some commands; "no live run" would then be the wrong advice."""
    laptop.kedge(command, code=2)
    assert f"error: there is no {missing} of this folder's job\n" in laptop.errors


def test_following_a_log_whose_machine_is_lost_says_so_and_fails(laptop: Laptop) -> None:
    """Both `logs -f` during the loss and later; the log in the store is shown anyway."""
    laptop.write_job(ENDLESS.replace("100000", "100000, PAUSE: 0.2"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: any(file.path == "run.log" and file.bytes > 100 for file in store.manifest(run)))
    follower = laptop.start("logs", "-f")
    assert follower.stdout is not None
    assert follower.stdout.readline()
    kill_machine(laptop, run)
    _, errors = follower.communicate(timeout=60)
    assert follower.returncode == 1
    # Its disk may still exist at the first query: then the machine is "lost", and a moment later "gone".
    assert re.search(rf"error: machine {run}-m1 is (gone|lost)\n.*\n.*`kedge resume {run}`", errors), errors
    assert f"machine {run}-m1 is gone; it ended without a kedge command" in laptop.kedge("status")
    assert "started, attempt 1" in laptop.kedge("logs", "-f", code=1)
    assert f"error: machine {run}-m1 is gone" in laptop.errors
    assert "started, attempt 1" in laptop.kedge("logs")


def test_a_second_launch_in_a_folder_mentions_the_live_run_and_asks_on_a_terminal(laptop: Laptop) -> None:
    """A script with --yes launches several on purpose, and gets a note; a person is asked, with the run's name."""
    laptop.write_job(ENDLESS)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    argv = [sys.executable, "-m", "orchestrator.cli", "launch", "--detach"]
    code, shown = on_terminal(argv, cwd=laptop.home, env=laptop.env, answer=b"n\n")
    assert code == 2
    # The command's current state comes from `status`: the ledger has only an earlier one.
    assert f"found: run {run} of this folder is live\n" in shown
    assert "Launch another run beside it? [y/N]" in shown
    laptop.kedge("launch", "--detach", code=2)
    assert len(laptop.json("status")) == 1
    assert f"run {run} of this folder is live" in laptop.kedge("launch", "--detach", "--yes")
    for status in laptop.json("status"):
        laptop.kedge("teardown", status["run"], "--yes", "--no-fetch")
    shutil.rmtree(Path(laptop.home) / "kedge-results", ignore_errors=True)
    _, shown = on_terminal(argv, cwd=laptop.home, env=laptop.env, answer=b"n\n")
    assert "Go ahead? [y/N]" in shown
    assert "is live" not in shown
