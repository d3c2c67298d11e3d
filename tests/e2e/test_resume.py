"""Scripts that start from scratch unless told otherwise: what is kept and reported, and how a run resumes."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.job import Job
from tests.e2e.runs import kill_machine
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: nano
    workdir: .
    run: python nano.py --out_dir=out
    checkpoints: out
    deadline: 10m
    supervisor: {kind: nohup, restarts: 1, restart_after: 1s, grace: 5s}
"""
RESUME = JOB + "    resume: {args: --init_from=resume}\n"


@pytest.fixture
def nano(laptop: Laptop) -> Laptop:
    shutil.copy(Path(__file__).parent / "nano.py", laptop.home)
    return laptop


def log(laptop: Laptop) -> str:
    return laptop.kedge("logs", "--lines", "100000", code=None)


def recorded(laptop: Laptop, run: str) -> Job:
    """Read the run's job from the ledger."""
    ledger = laptop.ledger()
    record = ledger.run(run)
    ledger.close()
    assert record is not None
    return record.spec.job


def saved(path: Path) -> int:
    """Read a checkpoint's step; 0 while it is being written, or if there is none."""
    try:
        return step_of(path.read_bytes())
    except FileNotFoundError:
        return 0


def step_of(checkpoint: bytes) -> int:
    """Return a checkpoint's step; 0 for a part of one."""
    try:
        return int(pickle.loads(checkpoint)["iter_num"])
    except (EOFError, pickle.UnpicklingError):
        return 0


def await_stored(laptop: Laptop, run: str) -> None:
    """Wait until 650 steps are in the store.

    If the script is then stopped while it overwrites its only checkpoint, kedge restores that one.
    """
    store = Results(FolderBucket(laptop.state / "store"))
    wait_until(lambda: step_of(store.read_file(run, "checkpoints/ckpt.pt")) >= 650)


def starts(laptop: Laptop) -> list[int]:
    """Return the step from which the script began, for each of its starts."""
    return [int(step) for step in re.findall(r"training from iter (\d+)\n", log(laptop))]


def test_a_fresh_start_is_reported_with_the_way_back_to_the_checkpoint(nano: Laptop) -> None:
    """Its 650 steps are kept, `status` says how to resume from them, and that command works as printed."""
    nano.write_job(JOB)
    run = nano.json("launch", "--yes", "--detach")["run"]
    await_stored(nano, run)
    (nano.home / "note.txt").write_text("changed code")
    nano.kedge("sync-code", "--restart")
    wait_until(lambda: nano.json("status")[0]["report"]["anew"])
    (status,) = nano.json("status")
    anew, (finding,) = status["report"]["anew"], status["findings"]
    assert (anew["name"], anew["kept"], anew["had_step"] >= 650, anew["step"] < 650) == (
        "ckpt.pt",
        "ckpt.pt",
        True,
        True,
    )
    assert f"it seems to have started over: its first checkpoint, ckpt.pt, is of step {anew['step']}" in finding
    assert "it seems to have started over" in log(nano)
    kept = nano.state / "machines" / f"{run}-m1" / "results" / "checkpoints.kept" / "ckpt.pt"
    assert saved(kept) == anew["had_step"]

    nano.write_job(RESUME)
    for words in re.findall(r"`kedge ([^`]*)`", finding):
        said = nano.kedge(*shlex.split(words))
    assert "this runs instead: `python nano.py --out_dir=out --init_from=resume`" in said
    wait_until(lambda: f"training from iter {anew['had_step']}" in log(nano))
    assert recorded(nano, run).tasks[0].resume_args == "--init_from=resume"
    nano.kedge("teardown", "--yes")
    home = nano.home / "kedge-results" / run
    assert saved(home / "checkpoints.kept" / "ckpt.pt") >= anew["had_step"]
    assert nano.json("status", run)[0]["findings"] == []


def test_a_script_with_a_resume_command_loses_no_steps_with_its_machine(nano: Laptop) -> None:
    """First its command is killed, then its machine: both times it resumes, and there is no warning."""
    nano.write_job(RESUME)
    shown = nano.kedge("plan")
    assert (
        "if there is a checkpoint to resume from, this runs instead: `python nano.py --out_dir=out --init_from=resume`"
        in shown
    )
    run = nano.json("launch", "--yes", "--detach")["run"]
    await_stored(nano, run)
    report = nano.state / "machines" / f"{run}-m1" / "state.json"
    os.killpg(int(re.findall(r'"group": (\d+)', report.read_text())[0]), signal.SIGKILL)
    wait_until(lambda: len(starts(nano)) == 2)
    store = Results(FolderBucket(nano.state / "store"))
    wait_until(lambda: store.read_file(run, "run.log").count(b"training from iter") == 2)
    assert nano.json("status", run)[0]["report"]["shipped"]["checkpoint"] == "ckpt.pt"
    kill_machine(nano, run)
    nano.kedge("resume", run, "--yes", "--detach")
    wait_until(lambda: len(starts(nano)) == 3)
    first, second, third = starts(nano)
    assert first == 0
    assert min(second, third) >= 650
    assert "started over" not in log(nano)
    assert nano.json("status", run)[0]["report"]["anew"] is None


def test_resume_can_change_a_run_s_command(nano: Laptop) -> None:
    """The plan shows what changes, the ledger keeps it, and a command that needs sudo is refused: the job has none."""
    nano.write_job(JOB)
    run = nano.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "saved iter 650" in log(nano))
    nano.kedge("start", "--command", "echo new")
    assert recorded(nano, run).tasks[0].run == "echo new"
    nano.kedge("stop")
    said = nano.kedge("start", "--command", "sleep 1; echo quite another one")
    assert "the command is changed from `echo new` to `sleep 1; echo quite another one`" in said
    wait_until(lambda: "quite another one" in log(nano))
    nano.kedge("start", "--command", "sudo reboot", code=2)
    assert "uses sudo" in nano.errors
    nano.kedge("start", "--command", "x", "--reread", code=2)
    nano.kedge("sync-code", "--reread", code=2)
    (nano.home / "kedge.yaml").unlink()
    nano.kedge("resume", "--reread", code=2)
    assert "is gone" in nano.errors
