"""The learning rate of every step."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
    StepLR,
)

from trainer.base.config import OptimizerSettings, ScheduleSettings, Settings
from trainer.base.errors import BadRequestError
from trainer.step.batch import BatchPlan, plan_batch
from trainer.step.schedule import find_schedule_concern, learning_rate, plan_rates, scale_learning_rate


def make_plan(*, epochs: int, steps_per_epoch: int) -> BatchPlan:
    return plan_batch(batch_size=1, world_size=1, samples=steps_per_epoch, epochs=epochs)


def torchs_rates(make: Callable[[torch.optim.Optimizer], LRScheduler], count: int) -> list[float]:
    """The first rates of one of torch's schedulers, from a peak of 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(count):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


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


# Plans of 12 epochs with 5 steps each: 60 steps.
SHAPES: dict[str, tuple[dict[str, float], Callable[[torch.optim.Optimizer], LRScheduler]]] = {
    "constant": ({}, lambda optimizer: ConstantLR(optimizer, factor=1.0)),
    "cosine": ({"final": 0.1}, lambda optimizer: CosineAnnealingLR(optimizer, T_max=60, eta_min=0.1)),
    "linear": ({"final": 0.1}, lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=60)),
    "step": ({"gamma": 0.5, "period_epochs": 4}, lambda optimizer: StepLR(optimizer, step_size=20, gamma=0.5)),
    "warm_restarts": (
        {"period_epochs": 4, "period_factor": 2, "final": 0.1},
        lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=20, T_mult=2, eta_min=0.1),
    ),
    "warmup_stable_decay": (
        {"decay": 0.25, "final": 0.1},
        lambda optimizer: SequentialLR(
            optimizer, [ConstantLR(optimizer, 1.0), LinearLR(optimizer, 1.0, 0.1, total_iters=15)], milestones=[45]
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in")  # SequentialLR's own use of it
@pytest.mark.parametrize("name", SHAPES)
def test_shape_equals_torchs(name: str) -> None:
    """Every rate of a run without warm-up equals that of torch's scheduler."""
    options, theirs = SHAPES[name]
    schedule = ScheduleSettings(name=name, **options)  # type: ignore[arg-type]
    rates = make_rates(schedule, make_plan(epochs=12, steps_per_epoch=5))
    assert rates == pytest.approx(torchs_rates(theirs, 60), rel=1e-9)


def test_exponential_equals_torchs_once_an_epoch() -> None:
    """The rate of each epoch is that of ExponentialLR, which is stepped per epoch."""
    rates = make_rates(ScheduleSettings(name="exponential", gamma=0.9), make_plan(epochs=12, steps_per_epoch=5))
    assert rates[::5] == pytest.approx(torchs_rates(lambda optimizer: ExponentialLR(optimizer, gamma=0.9), 12))


@pytest.mark.parametrize("name", ["cosine", "linear", "step", "warmup_stable_decay"])
def test_shape_begins_after_the_warm_up_and_ends_with_the_run(name: str) -> None:
    """A warm-up of 10 steps: up to the peak, then the shape; shapes that fall to `final` reach it after the last."""
    schedule = ScheduleSettings(name=name, warmup_steps=10, final=0.1, gamma=0.5, period_epochs=2, decay=0.2)  # type: ignore[arg-type]
    plan = make_plan(epochs=10, steps_per_epoch=5)
    rates = make_rates(schedule, plan)
    assert rates[:10] == pytest.approx([number / 10 for number in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)
    after = learning_rate(schedule, peak=1.0, step=plan.total_steps, plan=plan)
    assert after == pytest.approx(0.5**4 if name == "step" else 0.1)
    if name == "warmup_stable_decay":
        assert rates[10:41] == pytest.approx([1.0] * 31)
        assert rates[45] == pytest.approx(0.55)


def test_run_of_max_steps_has_its_whole_schedule() -> None:
    """17 steps of 3 epochs with 10: the plan and the cosine end there; more than there are changes nothing."""
    plan = plan_batch(batch_size=1, world_size=1, samples=10, epochs=3, max_steps=17)
    assert plan.total_steps == 17
    schedule = ScheduleSettings(name="cosine", final=0.0)
    assert learning_rate(schedule, peak=1.0, step=17, plan=plan) == pytest.approx(0.0, abs=1e-12)
    assert plan_batch(batch_size=1, world_size=1, samples=10, epochs=3, max_steps=99).total_steps == 30
    periods = ScheduleSettings(name="warm_restarts", period_epochs=1, period_factor=1)
    concern = find_schedule_concern(periods, plan)
    assert concern is not None
    assert "at epoch 1.7" in concern


def test_factor_lowers_every_rate() -> None:
    """optimizer.rate_factor multiplies the peak, scaled or not."""
    plan = make_plan(epochs=1, steps_per_epoch=4)
    for scaling in ("none", "linear"):
        rates = [
            plan_rates(Settings(optimizer=OptimizerSettings(rate_factor=factor, scaling=scaling, base_batch=2)), plan)
            for factor in (1.0, 0.1)
        ]
        for step in range(4):
            assert rates[1](step) == pytest.approx(0.1 * rates[0](step))


def test_recipes_schedule_replaces_the_settings() -> None:
    """It is asked once for the whole run, and returns shares of the peak; no warm-up is added."""
    asked: list[int] = []

    def make(total_steps: int) -> Callable[[int], float]:
        asked.append(total_steps)
        return lambda step: 1 / (1 + step)

    settings = Settings(
        optimizer=OptimizerSettings(learning_rate=0.5), schedule=ScheduleSettings(name="constant", warmup_steps=3)
    )
    rates = plan_rates(settings, make_plan(epochs=2, steps_per_epoch=3), make)
    assert [rates(step) for step in range(3)] == pytest.approx([0.5, 0.25, 0.5 / 3])
    assert asked == [6]


@pytest.mark.parametrize("share", [math.nan, -0.1, math.inf])
@pytest.mark.parametrize("bad", [0, 5])
def test_recipes_schedule_with_an_unusable_rate_is_refused(share: float, bad: int) -> None:
    """Before the run starts, not when the weights are already destroyed: the first step's and the last step's."""
    with pytest.raises(BadRequestError, match=f"for step {bad}"):
        plan_rates(
            Settings(),
            make_plan(epochs=2, steps_per_epoch=3),
            lambda _: lambda step: share if step == bad else 1.0,
        )


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


@pytest.mark.parametrize("name", ["one_cycle", "cosine", "linear"])
@pytest.mark.parametrize("steps", [1, 2, 20])
def test_rate_stays_at_its_end_after_the_run(name: str, steps: int) -> None:
    """One cycle ends with the last step, the others after it; a run of one step begins there."""
    schedule = ScheduleSettings(name=name, final=0.25, rise=0.3)  # type: ignore[arg-type]
    plan = make_plan(epochs=1, steps_per_epoch=steps)
    end = max(1, steps - 1) if name == "one_cycle" else steps
    rates = [learning_rate(schedule, peak=1.0, step=end + more, plan=plan) for more in (0, 1, 30)]
    assert rates == pytest.approx([0.25] * 3)


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


def test_run_that_ends_inside_a_period_gives_a_warning() -> None:
    """91 epochs with periods of 10, 20, 40, 80: cut at a high rate; 70 epochs end with a period."""
    schedule = ScheduleSettings(name="warm_restarts", period_epochs=10, period_factor=2)
    assert find_schedule_concern(schedule, make_plan(epochs=70, steps_per_epoch=1)) is None
    concern = find_schedule_concern(schedule, make_plan(epochs=91, steps_per_epoch=1))
    assert concern is not None
    assert "epochs 70, 150" in concern


def test_warmup_in_epochs_has_their_length_whatever_the_batch() -> None:
    """Two epochs of four steps or of forty: the peak comes after them."""
    settings = Settings(
        optimizer=OptimizerSettings(learning_rate=1.0), schedule=ScheduleSettings(name="constant", warmup_epochs=2)
    )
    for steps_per_epoch in (4, 40):
        plan = make_plan(epochs=3, steps_per_epoch=steps_per_epoch)
        rates = [plan_rates(settings, plan)(step) for step in range(plan.total_steps)]
        assert rates.index(1.0) == 2 * steps_per_epoch - 1
        assert rates[0] == 1 / (2 * steps_per_epoch)


def test_warmup_as_long_as_the_run_is_reported() -> None:
    """A run of 8 steps never reaches its peak with a warm-up of 8, and does with one of 7."""
    plan = make_plan(epochs=2, steps_per_epoch=4)
    assert "never reaches its peak" in str(find_schedule_concern(ScheduleSettings(warmup_steps=8), plan))
    assert find_schedule_concern(ScheduleSettings(warmup_steps=7), plan) is None
