"""A start of another mode is killed at every write to the ledger: the run is in the old mode or in the new one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.laptop import Laptop
from tests.support.samples import part_of
from tests.support.waiting import wait_until

DRIVER = "crashing_start.py"
JOB = """
    name: toy
    workdir: .
    run: sleep 1000
    deadline: 30m
    supervisor: {kind: nohup, restarts: 0, grace: 1s}
    modes: {validate: {}, fast: {}}
"""
WRITES = 7
"""How often the start writes to the ledger: the mode, then three writes each for the stop and the start."""
POINTS = [(moment, number) for moment in ("before", "after") for number in range(1, WRITES + 1)]
SAMPLE = 5
"""How many of the points each run tries; `make nightly` tries all."""


def test_a_killed_start_of_a_mode_is_finished_by_the_same_command(laptop: Laptop) -> None:
    """One machine for all points: after each, the same command goes on with the mode, which begins only once."""
    laptop.write_job(JOB)
    run = str(laptop.json("launch", "--mode", "validate", "--detach", "--yes")["run"])
    (machine,) = (laptop.state / "machines").iterdir()
    _await_running(machine, "")
    for sequence, (moment, number) in enumerate(part_of(POINTS, SAMPLE), 1):
        variable = f"POINT={moment}{number}"
        done = laptop.drive(DRIVER, moment, str(number), run, "fast", variable)
        assert done.returncode == -9, done.stderr
        recorded = [mode["folder"] for mode in laptop.json("status", run)[0]["modes"]]
        assert len(recorded) - 1 == sequence - ((moment, number) == ("before", 1))
        laptop.kedge("start", run, "--mode", "fast", "--env", variable, "--yes")
        key = f"{sequence + 1}-fast"
        _await_running(machine, key)
        (status,) = laptop.json("status", run)
        assert [mode["folder"] for mode in status["modes"]] == ["", *(f"{n + 1}-fast" for n in range(1, sequence + 1))]
        assert (status["report"]["sequence"], status["state"]) == (sequence, "running")
        again = laptop.kedge("start", run, "--mode", "fast", "--env", variable, "--yes")
        assert "the command is at work already" in again
    last = laptop.drive(DRIVER, "after", str(WRITES + 1), run, "fast", "POINT=none")
    assert last.returncode == 0, last.stderr
    ledger = laptop.ledger()
    assert ledger.open_intents(run) == ()
    ledger.close()
    laptop.kedge("teardown", run, "--no-fetch", "--yes")
    assert laptop.processes() == []


def _await_running(machine: Path, key: str) -> None:
    path = machine / "tasks" / key / "state.json" if key else machine / "state.json"
    wait_until(lambda: path.exists() and json.loads(path.read_text())["command"]["state"] == "running")
