"""A machine whose init died still trains and answers: its work is saved before it is ended."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from orchestrator.adapters.providers.local.folder import MachineFolder
from tests.e2e.runs import log
from tests.e2e.selftest_stage import is_watch
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

TRAIN = """
import pathlib, signal, sys, time

saved, results = pathlib.Path("ckpt/saved"), pathlib.Path("results")
saved.parent.mkdir(exist_ok=True)
results.mkdir(exist_ok=True)

def checkpoint(*_):
    saved.write_text(str(step))
    (results / "stopped.txt").write_text(str(step))
    sys.exit()

step = int(saved.read_text()) if saved.exists() else 0
print(f"going on from step {step}" if step else "a fresh start", flush=True)
signal.signal(signal.SIGTERM, checkpoint)
while not pathlib.Path(sys.argv[1]).exists():
    step += 1
    print(f"step {step}", flush=True)
    time.sleep(0.05)
(results / "final.txt").write_text("trained")
"""
JOB = """
    name: toy
    workdir: .
    run: python train.py %s
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 20s}
"""


def launch(laptop: Laptop) -> str:
    """Start a command that runs until a file exists, and that saves only when it is stopped or done."""
    (laptop.home / "train.py").write_text(TRAIN)
    laptop.write_job(JOB % (laptop.home / "enough"))
    run = str(laptop.json("launch", "--yes", "--detach")["run"])
    wait_until(lambda: "step 3" in log(laptop))
    return run


def lose_init(laptop: Laptop, run: str, *, watch: bool = False) -> None:
    """Kill the machine's init, and optionally its agent's watch, which uploads; make it look like a day ago."""
    folder = laptop.state / "machines" / f"{run}-m1"
    init = MachineFolder(folder).init()
    assert init is not None
    watches = [child for child in psutil.Process(init.pid).children() if is_watch(child)]
    assert len(watches) == 1
    for process in (psutil.Process(init.pid), *(watches if watch else [])):
        process.kill()
        process.wait(timeout=60)
    if watch:
        (folder / "heartbeat.json").write_text(json.dumps({"time": time.time() - 86400}))


def finish(laptop: Laptop, run: str) -> None:
    (laptop.home / "enough").touch()
    state = laptop.state / "machines" / f"{run}-m1" / "state.json"
    wait_until(lambda: "succeeded" in state.read_text())


def home(laptop: Laptop, run: str) -> Path:
    return laptop.home / "kedge-results" / run / "output" / "results"


def test_a_teardown_stops_the_command_and_fetches_its_last_files(laptop: Laptop) -> None:
    """The copy is from the machine, not an older one from the object store."""
    run = launch(laptop)
    lose_init(laptop, run)
    laptop.kedge("teardown", "--yes")
    assert int((home(laptop, run) / "stopped.txt").read_text()) >= 3
    assert laptop.processes() == []
    assert not list((laptop.state / "machines").iterdir())


def test_a_replacement_resumes_from_the_lost_machine_s_last_save(laptop: Laptop) -> None:
    """There is no other checkpoint: without the stop, the new machine would start from scratch."""
    run = launch(laptop)
    lose_init(laptop, run)
    laptop.kedge("resume", run, "--yes", "--detach")
    saved = (home(laptop, run) / "stopped.txt").read_text()
    assert [machine["id"] for machine in laptop.json("status", run)[0]["machines"]] == [f"{run}-m2"]
    wait_until(lambda: f"going on from step {saved}" in log(laptop))
    laptop.kedge("teardown", "--yes", "--no-fetch")


@pytest.mark.parametrize("words", [("teardown",), ("resume",)], ids=["teardown", "resume"])
def test_finished_results_that_were_not_uploaded_are_fetched(laptop: Laptop, words: tuple[str, ...]) -> None:
    """Its watch is dead as well: they are only on its disk. No other machine is made, and the run has succeeded."""
    run = launch(laptop)
    lose_init(laptop, run, watch=True)
    finish(laptop, run)
    said = laptop.kedge(*words, run, "--yes")
    assert "no heartbeat for" in said
    assert "a verified copy of the results is on this computer" in said
    assert (home(laptop, run) / "final.txt").read_text() == "trained"
    ledger = laptop.ledger()
    record = ledger.run(run)
    assert record is not None
    assert (record.stage, record.outcome) == ("ended", "succeeded")
    assert [machine.id for machine in ledger.machines(run)] == [f"{run}-m1"]
    ledger.close()
    assert laptop.processes() == []


def test_a_lost_machine_that_does_not_answer_is_ended_anyway(laptop: Laptop) -> None:
    """Its sshd is dead as well: no command waits for it."""
    run = launch(laptop)
    # The last file of an upload: without it, the store has no results.
    wait_until((laptop.state / "store" / run / "manifest.json").exists)
    lose_init(laptop, run)
    sshd = MachineFolder(laptop.state / "machines" / f"{run}-m1").sshd_pid
    psutil.Process(int(sshd.read_text())).kill()
    laptop.kedge("teardown", "--yes")
    assert laptop.processes() == []
