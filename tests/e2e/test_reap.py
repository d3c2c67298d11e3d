"""`kedge reap` as a user sees it: what it prints, asks and ends, and its exit codes."""

from __future__ import annotations

from tests.e2e.runs import await_running
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    envs: {STEPS: 100000, PAUSE: 0.05}
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
CREATED = 4
"""By then a launch has recorded in the ledger that it has a machine; its next write is of another action."""


def launch_and_die(laptop: Laptop) -> str:
    """Leave a machine whose launch died, and return its run."""
    laptop.write_job(JOB)
    assert laptop.drive("crashing_launch.py", "after", str(CREATED)).returncode == -9
    (machine,) = laptop.provider().machines()
    return machine.run_id


def test_a_dead_launch_is_shown_asked_about_and_ended(laptop: Laptop) -> None:
    """The dry run changes nothing and exits 5; without a terminal it needs --yes; then nothing is left."""
    run = launch_and_die(laptop)
    table = laptop.kedge("reap", "--dry-run", code=5)
    assert "something may still be billing" in laptop.errors
    assert f"- machine {run}-m1" in " ".join(table.split())
    assert "its launch ended before the command was started" in table
    laptop.kedge("reap", code=2)
    assert len(laptop.provider().machines()) == 1
    assert "Nothing bills" in laptop.kedge("reap", "--yes")
    assert laptop.processes() == []
    assert laptop.json("status") == []
    (status,) = laptop.json("status", "--all")
    assert (status["run"], status["stage"], status["findings"]) == (run, "ended", [])


def test_a_run_that_trains_is_left_alone_until_its_deadline_has_passed(laptop: Laptop) -> None:
    """It isn't listed while it trains; when its time is over, it ends with its machine."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    await_running(laptop)
    assert "Nothing bills" in laptop.kedge("reap", "--yes", "--all")
    assert laptop.json("status", run)[0]["state"] == "running"
    done = laptop.drive("reaping_later.py", "3600")
    assert done.returncode == 0, done.stderr
    assert "past its deadline by 50m" in done.stdout
    wait_until(lambda: laptop.processes() == [])
    assert laptop.json("status") == []


def test_scripts_get_what_was_done_as_json(laptop: Laptop) -> None:
    """One JSON document on standard output; the table goes to standard error."""
    run = launch_and_die(laptop)
    seen = laptop.json("reap", "--dry-run", code=5)
    assert (seen["reaped"], seen["billing"]) == ([], [f"machine {run}-m1"])
    done = laptop.json("reap", "--yes")
    assert {finding["step"] for finding in done["reaped"]} == {"end", "settle"}
    assert (done["left"], done["billing"], done["failed"]) == ([], [], [])
    assert f"machine {run}-m1" in laptop.errors


def test_a_provider_that_can_not_be_queried_is_named(laptop: Laptop) -> None:
    """Without credentials it counts only if it was named: then nothing is known, which is no all-clear."""
    nothing = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    laptop.extra_env |= {**nothing, "AWS_EC2_METADATA_DISABLED": "true"}
    laptop.kedge("reap", "--yes")
    assert "aws was not queried" in laptop.errors
    laptop.kedge("reap", "--yes", "--provider", "aws", code=5)
    assert "anything at aws" in laptop.errors


def test_a_provider_that_does_not_exist_is_refused(laptop: Laptop) -> None:
    """A mistyped name must not pass for an empty account."""
    laptop.kedge("reap", "--yes", "--provider", "loca", code=2)
    assert "did you mean 'local'?" in laptop.errors
