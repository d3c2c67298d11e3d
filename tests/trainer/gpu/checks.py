"""What has to be true of each case, on every device."""

import math
from collections.abc import Collection
from pathlib import Path

import pytest
import torch

from tests.trainer.gpu.features import (
    FITTING,
    STEPS,
    Outcome,
    largest_difference,
    resume_from_the_middle,
    tolerance_of,
    train,
)


def check_case(case: Collection[str], plain: Outcome, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train, compare with the plain run, resume, compare with itself."""
    whole = train(case, folder / "whole")
    printed = capsys.readouterr().out
    check_training(whole, plain)
    check_features(whole, printed)
    resumed = resume_from_the_middle(whole, folder / "resumed")
    assert "resumed from step 6" in capsys.readouterr().out
    check_resume(resumed, whole)


def check_training(whole: Outcome, plain: Outcome) -> None:
    """It learns, and in the first epoch like the plain run."""
    assert len(whole.losses) == STEPS
    assert all(math.isfinite(loss) for loss in (*whole.losses, *whole.validated))
    assert whole.losses[-1] < 0.8 * whole.losses[0]
    first = STEPS // 2
    assert whole.losses[:first] == pytest.approx(plain.losses[:first], rel=tolerance_of(whole.names), abs=1e-4)


def check_features(whole: Outcome, printed: str) -> None:
    """Each feature of the case was at work."""
    names = whole.names
    assert ("out of memory: micro-batch 8 -> 4" in printed) is ("out_of_memory" in names)
    assert whole.state["micro_batches"] == [FITTING if "out_of_memory" in names else 2 * FITTING]
    assert (whole.state["average"] is not None) is ("ema" in names)
    assert bool(whole.state["scaler"]) is ("fp16" in names)
    assert "torch.compile failed" not in printed
    assert ("sharded over 1 processes (FSDP2)" in printed) is ("fsdp" in names)
    traced = list((whole.folder / "profile").glob("steps-2-3*"))
    has_memory = "profile" in names and torch.cuda.is_available()
    assert len(traced) == ("profile" in names) + has_memory


def check_resume(resumed: Outcome, whole: Outcome) -> None:
    """To the bit where the device computes the same twice, else except for rounding."""
    difference = largest_difference(resumed, whole)
    if "deterministic" in whole.names or not torch.cuda.is_available():
        assert difference == 0
        assert resumed.losses == whole.losses
    else:
        assert difference < 0.02
        assert resumed.losses == pytest.approx(whole.losses, rel=0.05, abs=1e-3)
