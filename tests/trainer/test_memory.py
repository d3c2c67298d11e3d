"""Runs that run out of memory, and continue."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer import harness

SCRIPT = Path(__file__).with_name("scarce_run.py")
SETTINGS = (
    "epochs=1",
    "batch_size=64",
    "model.width=4",
    "log_every_steps=1",
    "checkpoint.every_steps=1",
    "onnx=false",
    "curves=false",
)
STEPS = 22


def run_scarce(
    folder: Path, phase: str, *settings: str, rank: int, room: int, after: int = 0, max_restarts: int = 0
) -> harness.Result:
    where = (str(folder), phase, str(rank), str(room), str(after))
    return harness.run_script(str(SCRIPT), *where, *SETTINGS, *settings, processes=2, max_restarts=max_restarts)


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in harness.read_rows(folder) if "val_loss" not in row]


@pytest.mark.slow
def test_rank_without_memory_repeats_its_share_while_the_other_waits(tmp_path: Path) -> None:
    """Rank 1 has room for 8 of its 32 samples: it halves twice, no process restarts, all steps are done.

    The first loss is that of a group with enough memory, except for batch norm's smaller groups.
    """
    scarce = run_scarce(tmp_path / "scarce", "forward", rank=1, room=8)
    assert scarce.code == 0, scarce.err
    assert "rank 1: out of memory: micro-batch 32 -> 16, accumulation x 2, same global batch" in scarce.err
    assert "rank 1: out of memory: micro-batch 16 -> 8, accumulation x 2, same global batch" in scarce.err
    ample = run_scarce(tmp_path / "ample", "forward", rank=1, room=32)
    assert ample.code == 0, ample.err
    ours, theirs = losses(tmp_path / "scarce"), losses(tmp_path / "ample")
    assert len(ours) == len(theirs) == STEPS
    assert ours[0] == pytest.approx(theirs[0], rel=0.1)
    assert sum(ours[-5:]) == pytest.approx(sum(theirs[-5:]), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "settings", "resumed_from"),
    [("backward", (), 7), ("forward", ("compute.fully_shard=on",), 5)],
    ids=["while gradients are all-reduced", "while sharded weights are all-gathered"],
)
def test_group_restarts_when_memory_ran_out_in_a_collective(
    phase: str, settings: tuple[str, ...], resumed_from: int, tmp_path: Path
) -> None:
    """Rank 1 runs out in the eighth pass, while rank 0 waits for it: torchrun restarts both with half the micro-batch.

    They continue from the last step, which rank 1 has saved alone; rank 1 hasn't the whole of a sharded model, so that
    one continues from the last checkpoint. Both use the new micro-batch, no rank hangs, and every step is done once.
    """
    folder = tmp_path / "output"
    common = ("checkpoint.every_steps=5", *settings)
    ended = run_scarce(folder, phase, *common, rank=1, room=16, after=7, max_restarts=1)
    assert ended.code == 0, ended.err
    assert "out of memory on cpu in a pass that cannot be repeated" in ended.err
    assert "micro-batch 16 instead of 32: an earlier start ran out of memory" in ended.out
    assert f"resumed from step {resumed_from} " in ended.out
    assert [row["step"] for row in harness.read_rows(folder) if "val_loss" not in row] == list(range(1, STEPS + 1))
    assert harness.read_status(folder)["state"] == "succeeded"


def test_limit_of_the_address_space_leads_to_a_smaller_micro_batch(tmp_path: Path) -> None:
    """A real allocator that refuses: the whole batch of 1,437 doesn't fit, the run succeeds with a part of it."""
    settings = ("epochs=1", "batch_size=1437", "model.width=64", "onnx=false", "curves=false")
    argv = ["digits", *harness.settings_args(settings), "--output-dir", str(tmp_path / "output")]
    program = harness.under_address_limit(
        extra_bytes=350 << 20,
        call="from trainer.cli import main; from trainer.base.signals import StopFlag; "
        f"code = main({argv!r}, environ={{}}, stop=StopFlag())",
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        # Without this, each thread takes 64 MiB of address space for its own arena.
        env=harness.plain_environ(MALLOC_ARENA_MAX="1"),
        capture_output=True,
        text=True,
        timeout=harness.TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "out of memory: micro-batch 1437 -> 479, accumulation x 3, same global batch" in ended.stdout
    assert harness.read_status(tmp_path / "output")["state"] == "succeeded"
