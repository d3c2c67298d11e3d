"""W4's and W1's tables of batches and rates, through the settings that the job files use."""

from dataclasses import replace
from typing import Literal

import pytest

from trainer.base.errors import BadRequestError
from trainer.recipes.pcdiff.settings import ADAM
from trainer.recipes.pcdiff.workload import recipe
from trainer.step.batch import BatchPlan, find_batch_concern, plan_batch, render_split
from trainer.step.schedule import plan_rates, scale_learning_rate

CASES = 455
"""91 skulls for training in SkullBreak's list, five defects each."""


def plan(batch_size: int, world_size: int, **options: int) -> BatchPlan:
    return plan_batch(batch_size=batch_size, world_size=world_size, samples=CASES, epochs=15_000, **options)


@pytest.mark.parametrize(
    ("batch", "gpus", "each"), [(8, 1, 8), (8, 8, 1), (64, 8, 8), (128, 8, 16), (128, 16, 8), (56, 7, 8)]
)
def test_the_batch_is_global(batch: int, gpus: int, each: int) -> None:
    """W1: 56 over 7 GPUs is 8 each, not 392 in all."""
    split = plan(batch, gpus)
    assert (split.per_device, split.batch_size) == (each, batch)
    assert render_split(split) == f"batch {batch} = {gpus} x {each}"


def test_one_sample_per_gpu_is_warned_of_and_eight_are_recommended() -> None:
    assert "8 per process is a good size (--set batch_size=64)" in str(find_batch_concern(plan(8, 8)))
    assert find_batch_concern(plan(64, 8)) is None


def test_a_batch_that_doesnt_divide_is_refused_with_the_nearest_ones() -> None:
    """The original's 100 over 8 GPUs silently becomes 96."""
    with pytest.raises(BadRequestError) as refused:
        plan(100, 8)
    assert "batch_size 100 does not divide over 8 processes" in str(refused.value)
    assert "--set batch_size=96 or --set batch_size=104" in str(refused.value)


@pytest.mark.parametrize(
    ("gpus", "batch", "linear", "square_root"),
    [
        (1, 8, 2e-4, 2e-4),
        (2, 16, 4e-4, 2.83e-4),
        (4, 32, 8e-4, 4e-4),
        (8, 64, 1.6e-3, 5.66e-4),
        (16, 128, 3.2e-3, 8e-4),
        (7, 56, 1.4e-3, 5.29e-4),
    ],
)
def test_rates_grow_as_in_the_tables(gpus: int, batch: int, linear: float, square_root: float) -> None:
    expected: dict[Literal["none", "linear", "sqrt"], float] = {"none": 2e-4, "linear": linear, "sqrt": square_root}
    assert plan(batch, gpus).per_device == 8
    for scaling, rate in expected.items():
        settings = replace(ADAM, scaling=scaling)
        assert scale_learning_rate(settings, batch_size=batch) == pytest.approx(rate, rel=2e-3)


def test_equal_epochs_on_eight_gpus_are_an_eighth_of_the_steps() -> None:
    """56 and 7 steps an epoch; max_steps keeps the number of steps instead."""
    assert (plan(8, 1).total_steps, plan(64, 8).total_steps) == (840_000, 105_000)
    assert plan(64, 8, max_steps=50_000).total_steps == 50_000


def test_accumulation_keeps_the_global_batch_on_fewer_gpus() -> None:
    split = plan(64, 2, micro_batch=8)
    assert (split.per_device, split.micro_batch, split.accumulation) == (32, 8, 4)


def test_the_rate_warms_up_and_decays_by_the_epoch() -> None:
    settings = recipe().settings
    schedule = replace(settings.schedule, warmup_epochs=2, gamma=0.9)
    settings = replace(settings, schedule=schedule, optimizer=replace(ADAM, scaling="sqrt"))
    split = plan(64, 8)
    rate = plan_rates(settings, split)
    peak = 2e-4 * 8**0.5
    assert rate(0) == pytest.approx(peak / 14)
    assert rate(13) == pytest.approx(peak)
    assert rate(14 + 7 * 3) == pytest.approx(peak * 0.9**3)
