"""The learning rate of every step."""

import math

import pytest
import torch

from trainer.base.config import OptimizerSettings, ScheduleSettings
from trainer.base.errors import BadRequestError
from trainer.step.batch import BatchPlan, plan_batch
from trainer.step.schedule import find_schedule_concern, learning_rate, scale_learning_rate


def make_plan(*, epochs: int, steps_per_epoch: int) -> BatchPlan:
    return plan_batch(batch_size=1, world_size=1, samples=steps_per_epoch, epochs=epochs)


def make_rates(schedule: ScheduleSettings, plan: BatchPlan) -> list[float]:
    return [learning_rate(schedule, peak=1.0, step=step, plan=plan) for step in range(plan.total_steps)]


@pytest.mark.parametrize(
    ("base", "base_batch", "batch_size", "linear", "square_root"),
    [
        (2e-4, 8, 8, 2e-4, 2e-4),
        (2e-4, 8, 16, 4e-4, 2.83e-4),
        (2e-4, 8, 32, 8e-4, 4e-4),
        (2e-4, 8, 64, 1.6e-3, 5.66e-4),
        (2e-4, 8, 128, 3.2e-3, 8e-4),
        (2e-4, 8, 56, 1.4e-3, 5.3e-4),
    ],
)
def test_learning_rate_follows_the_global_batch(
    base: float, base_batch: int, batch_size: int, linear: float, square_root: float
) -> None:
    """The reference workflows' tables: 8 to 128 samples from a base of 8, and 56 over 7 GPUs."""

    def scaled(**how: str) -> float:
        settings = OptimizerSettings(learning_rate=base, base_batch=base_batch, **how)  # type: ignore[arg-type]
        return scale_learning_rate(settings, batch_size=batch_size)

    assert scaled(scaling="linear") == pytest.approx(linear, rel=2e-3)
    assert scaled(scaling="sqrt") == pytest.approx(square_root, rel=2e-3)
    assert scaled(scaling="none") == base


def test_scaling_without_a_base_batch_is_refused() -> None:
    """The rate can't be scaled; the fix names the setting."""
    with pytest.raises(BadRequestError, match="nothing to scale from") as caught:
        scale_learning_rate(OptimizerSettings(scaling="linear"), batch_size=64)
    assert "--set optimizer.base_batch=64" in caught.value.fix


def test_learning_rate_warms_up_then_falls_along_a_cosine() -> None:
    """Linear to the peak over the warm-up, half of the peak in the middle of the rest, the final share at the end."""
    schedule = ScheduleSettings(name="cosine", warmup_steps=10, final=0.1)
    plan = make_plan(epochs=1, steps_per_epoch=110)

    def rate(step: int) -> float:
        return learning_rate(schedule, peak=1.0, step=step, plan=plan)

    assert [rate(step) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert rate(60) == pytest.approx(0.55)
    assert rate(110) == pytest.approx(0.1)


def test_one_cycle_equals_torchs() -> None:
    """Every rate equals that of OneCycleLR with the same start, rise and end."""
    plan = make_plan(epochs=4, steps_per_epoch=25)
    schedule = ScheduleSettings(name="one_cycle", start=0.04, rise=0.3, final=4e-6)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=plan.total_steps, pct_start=0.3, div_factor=25, final_div_factor=1e4
    )
    expected = []
    for _ in range(plan.total_steps):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step() if len(expected) < plan.total_steps else None
    assert make_rates(schedule, plan) == pytest.approx(expected, rel=1e-9)


def test_one_cycle_rises_over_the_warm_up_if_it_is_set() -> None:
    """The peak is at the last step of the warm-up instead of at a share of the run."""
    rates = make_rates(ScheduleSettings(name="one_cycle", warmup_steps=7), make_plan(epochs=1, steps_per_epoch=50))
    assert rates.index(max(rates)) == 7
    assert rates[-1] == pytest.approx(0.01)


def test_exponential_falls_at_each_epochs_end_whatever_the_number_of_epochs() -> None:
    """0.9 an epoch: 1, 0.9, 0.81; an extended run has the rates of the longer one."""
    schedule = ScheduleSettings(name="exponential", gamma=0.9)
    short, long = (make_rates(schedule, make_plan(epochs=epochs, steps_per_epoch=3)) for epochs in (2, 3))
    assert long == pytest.approx([1.0] * 3 + [0.9] * 3 + [0.81] * 3)
    assert long[:6] == short


def test_warm_restarts_begin_each_period_at_the_peak() -> None:
    """Periods of 2 and 4 epochs of 10 steps: as torch's CosineAnnealingWarmRestarts."""
    plan = make_plan(epochs=6, steps_per_epoch=10)
    rates = make_rates(ScheduleSettings(name="warm_restarts", period_epochs=2, period_factor=2, final=0.0), plan)
    expected = [0.5 * (1 + math.cos(math.pi * step / 20)) for step in range(20)]
    expected += [0.5 * (1 + math.cos(math.pi * step / 40)) for step in range(40)]
    assert rates == pytest.approx(expected)


def test_run_that_ends_inside_a_period_gives_a_warning() -> None:
    """91 epochs with periods of 10, 20, 40, 80: cut at a high rate; 70 epochs end with a period."""
    schedule = ScheduleSettings(name="warm_restarts", period_epochs=10, period_factor=2)
    assert find_schedule_concern(schedule, make_plan(epochs=70, steps_per_epoch=1)) is None
    concern = find_schedule_concern(schedule, make_plan(epochs=91, steps_per_epoch=1))
    assert concern is not None
    assert "epochs 70, 150" in concern
