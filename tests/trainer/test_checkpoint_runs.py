"""A run's checkpoints: when, how many, and what happens when they can't be written."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from tests.trainer.harness import SMALL, STEPS_PER_EPOCH
from trainer.checkpoints.store import load_checkpoint

STUCK = """
import ctypes
from trainer.base.signals import StopFlag
StopFlag().install()
mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
print("stuck", flush=True)
lock(mutex)
"""


def steps_of(folder: Path, kind: str) -> list[int]:
    names = sorted(path.stem for path in (folder / "checkpoints").glob(f"{kind}-*.safetensors"))
    return [int(name.partition("-")[2]) for name in names]


def test_epochs_in_between_are_saved_only_if_they_are_the_best(tmp_path: Path) -> None:
    """every_epochs=3: of five epochs, the third, the last, and those that were the best so far."""
    folder = tmp_path / "output"
    settings = (*SMALL, "epochs=5", "checkpoint.every_steps=0", "checkpoint.every_epochs=3", "checkpoint.keep=9")
    assert harness.call(folder, *settings) == 0
    best, expected = 0.0, {3, 5}
    for row in harness.read_rows(folder):
        if row.get("val_accuracy", 0.0) > best:
            best = row["val_accuracy"]
            expected.add(row["epoch"])
    assert steps_of(folder, "step") == [STEPS_PER_EPOCH * epoch for epoch in sorted(expected)]


def test_best_few_epochs_are_kept_by_the_recipes_metric(tmp_path: Path) -> None:
    """keep_best=2 of four epochs: the two with the highest accuracy, the earlier one on ties."""
    folder = tmp_path / "output"
    assert harness.call(folder, *SMALL, "epochs=4", "checkpoint.keep_best=2") == 0
    rows = [row for row in harness.read_rows(folder) if "val_accuracy" in row]
    best = sorted(rows, key=lambda row: -row["val_accuracy"])[:2]
    assert steps_of(folder, "best") == sorted(row["step"] for row in best)


def test_run_of_format_1_resumes_to_the_same_bits(small_run: Path, finished: Path) -> None:
    """The newest checkpoint within an epoch, as the first release would have written it: resumed exactly."""
    folder = finished / "checkpoints"
    inside = next(step for step in steps_of(finished, "step") if step % STEPS_PER_EPOCH)
    state = load_checkpoint(folder / f"step-{inside:08d}.safetensors")
    for path in folder.glob("step-*"):
        path.unlink()
    torch.save({"format": 1, **state}, folder / f"step-{inside:08d}.pt")
    assert harness.call(finished, *SMALL) == 0
    harness.assert_same_run(finished, small_run)


def test_run_whose_checkpoint_cannot_be_written_fails_and_says_why(tmp_path: Path) -> None:
    """Files may not grow any more: exit 1, state "failed", one clear error, no temporary files, earlier ones intact."""
    folder = tmp_path / "output"
    # With few rows, the metrics stay smaller than the limit: a checkpoint is what meets it.
    process = harness.start(folder, *SMALL, "epochs=1000", "log_every_steps=1000")
    harness.wait_until(lambda: len(list((folder / "checkpoints").glob("step-*"))) > 1, "two checkpoints", process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (40_000, 40_000))
    ended = harness.finish(process)
    assert ended.code == 1
    assert "could not be written" in ended.err
    assert "Traceback" not in ended.err
    assert harness.read_status(folder)["state"] == "failed"
    assert not list((folder / "checkpoints").glob(".*"))
    assert load_checkpoint(harness.newest_checkpoint(folder))["progress"]["step"] > 0


@pytest.mark.slow
def test_two_ranks_stop_within_torchruns_timeout_whichever_gets_the_signal(tmp_path: Path) -> None:
    """Torchrun's timeout is in the environment; SIGTERM to the second rank alone stops both, durably and in time."""
    folder = tmp_path / "output"
    settings = (*SMALL, "epochs=1000", "checkpoint.every_steps=0", "checkpoint.every_epochs=0")
    process = harness.start(folder, *settings, processes=2, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="30")
    harness.wait_for_step(folder, 20, process)
    harness.rank_process(process, 1).send_signal(signal.SIGTERM)
    ended = harness.finish(process)
    assert ended.code == 0, ended.err
    status = harness.read_status(folder)
    assert status["state"] == "stopped"
    assert status["step"] == harness.read_rows(folder)[-1]["step"]
    assert load_checkpoint(harness.newest_checkpoint(folder))["progress"]["step"] == status["step"]


def test_second_sigint_ends_a_process_that_is_stuck_in_native_code(tmp_path: Path) -> None:
    """The main thread hangs, so no Python handler runs: the second Ctrl-C ends it anyway."""
    argv = [sys.executable, "-c", STUCK]
    with subprocess.Popen(argv, env=harness.plain_environ(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        give_up_at = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < give_up_at:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        process.kill()
    assert process.returncode in (130, -signal.SIGINT)
