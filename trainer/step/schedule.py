"""The learning-rate schedule, as a pure function of the step: there is no scheduler state to save."""

import math
from collections.abc import Callable
from dataclasses import replace

from trainer.base.config import OptimizerSettings, ScheduleSettings, Settings
from trainer.base.errors import BadRequestError
from trainer.step.batch import BatchPlan


def scale_learning_rate(settings: OptimizerSettings, *, batch_size: int) -> float:
    """Compute the peak rate for a global batch from the rate that was tuned for `base_batch`, times `rate_factor`.

    Linear: Goyal et al., Accurate, Large Minibatch SGD (2017), shown for SGD. Square root: Krizhevsky, One Weird
    Trick (2014), and for Adam Malladi et al., On the SDEs and Scaling Rules for Adaptive Gradient Algorithms (2022).

    Raises:
        BadRequestError: scaling is set without a base batch.
    """
    peak = settings.rate * settings.rate_factor
    if settings.scaling == "none":
        return peak
    if not settings.base_batch:
        raise BadRequestError(
            f"optimizer.scaling={settings.scaling} has nothing to scale from",
            why="optimizer.base_batch, the global batch that the learning rate was tuned for, is not set",
            fix=f"--set optimizer.base_batch={batch_size} if the rate is meant for this batch",
        )
    ratio = batch_size / settings.base_batch
    return peak * (ratio if settings.scaling == "linear" else math.sqrt(ratio))


def plan_rates(
    settings: Settings, plan: BatchPlan, make_schedule: Callable[[int], Callable[[int], float]] | None = None
) -> Callable[[int], float]:
    """Return the learning rate as a function of the steps done so far.

    Args:
        settings: the run's.
        plan: how many steps there are, and the global batch.
        make_schedule: the recipe's schedule: from the number of steps to the share of the peak at each step. It
            replaces the settings' shape and warm-up.

    Raises:
        BadRequestError: scaling is set without a base batch, or the recipe's schedule has a rate that can't be used.
    """
    peak = scale_learning_rate(settings.optimizer, batch_size=plan.batch_size)
    if make_schedule is None:
        schedule = resolve_warmup(settings.schedule, plan)
        return lambda step: learning_rate(schedule, peak=peak, step=step, plan=plan)
    share = make_schedule(plan.total_steps)
    for step in (0, plan.total_steps - 1):
        _check_share(share(step), step)
    return lambda step: peak * share(step)


def resolve_warmup(schedule: ScheduleSettings, plan: BatchPlan) -> ScheduleSettings:
    """Return the schedule with its warm-up in steps; the longer of the two settings counts."""
    steps = round(schedule.warmup_epochs * plan.steps_per_epoch)
    return replace(schedule, warmup_steps=max(schedule.warmup_steps, steps))


def learning_rate(schedule: ScheduleSettings, *, peak: float, step: int, plan: BatchPlan) -> float:
    """Compute the rate of one step.

    Linear warm-up from peak / warmup_steps, then the named shape. one_cycle has its own warm-up instead.

    Args:
        schedule: shape, warm-up and final rate.
        peak: the highest rate.
        step: steps done so far; the first step is 0.
        plan: how many steps there are, in an epoch and in the whole run.
    """
    if schedule.name == "one_cycle":
        return peak * _one_cycle(schedule, step, plan)
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    return peak * _SHAPES[schedule.name](schedule, step - schedule.warmup_steps, plan)


def find_schedule_concern(schedule: ScheduleSettings, plan: BatchPlan) -> str | None:
    """Warn if the run ends within its warm-up, or in the middle of a warm-restart period, at a high rate; else None."""
    warmup = resolve_warmup(schedule, plan).warmup_steps
    if warmup >= plan.total_steps:
        return f"the rate never reaches its peak: the warm-up has {warmup:,} steps, and the run {plan.total_steps:,}"
    if schedule.name != "warm_restarts":
        return None
    epochs = plan.total_steps / plan.steps_per_epoch
    ends = _period_ends(schedule, epochs)
    if epochs in ends:
        return None
    return (
        f"the last period of warm_restarts is cut short at epoch {epochs:g}, while the rate is high: "
        f"periods end at epochs {', '.join(str(end) for end in ends[-2:])}"
    )


def _check_share(share: float, step: int) -> None:
    if not math.isfinite(share) or share < 0:
        raise BadRequestError(
            f"the recipe's schedule returns {share} for step {step}",
            why="Workload.make_schedule returns the rate of each step as a share of the peak, at least 0",
            fix="mend the recipe's make_schedule, or leave it out to use the settings' schedule",
        )


def _constant(_schedule: ScheduleSettings, _step: int, _plan: BatchPlan) -> float:
    return 1.0


def _cosine(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Decay along half a cosine: Loshchilov and Hutter, SGDR (2017), eq. 5, one period."""
    return _fall(step / max(1, plan.total_steps - schedule.warmup_steps), 1.0, schedule.final)


def _linear(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Decay along a line: the values of torch's LinearLR."""
    return _descend(step / max(1, plan.total_steps - schedule.warmup_steps), schedule.final)


def _warmup_stable_decay(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Stay at the peak, then decay along a line over the last part of the run.

    Hu et al., MiniCPM (2024), section 4; Hagele et al., Scaling Laws and Compute-Optimal Training Beyond Fixed
    Training Durations (2024).
    """
    length = max(1.0, schedule.decay * plan.total_steps)
    begin = plan.total_steps - length - schedule.warmup_steps
    return _descend(max(0.0, step - begin) / length, schedule.final)


def _by_period(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Multiply by gamma at the end of each period: the values of torch's StepLR."""
    return float(schedule.gamma ** (step // (schedule.period_epochs * plan.steps_per_epoch)))


def _exponential(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Multiply by gamma at each epoch's end, whatever the number of epochs."""
    return float(schedule.gamma ** (step // plan.steps_per_epoch))


def _warm_restarts(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Decay along a cosine in each period: SGDR (2017), eq. 5, with T_0 and T_mult in epochs."""
    length = schedule.period_epochs * plan.steps_per_epoch
    while step >= length:
        step -= length
        length *= schedule.period_factor
    return _fall(step / length, 1.0, schedule.final)


def _one_cycle(schedule: ScheduleSettings, step: int, plan: BatchPlan) -> float:
    """Rise and fall along cosines over the whole run: Smith and Topin, Super-Convergence (2018).

    The values are those of torch's OneCycleLR, whose last step has the final rate.
    """
    last = max(1, plan.total_steps - 1)
    top = float(schedule.warmup_steps) or schedule.rise * plan.total_steps - 1
    if step <= top:
        return _fall(step / max(1.0, top), schedule.start, 1.0)
    return _fall((step - top) / max(1.0, last - top), 1.0, schedule.final)


_SHAPES: dict[str, Callable[[ScheduleSettings, int, BatchPlan], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "exponential": _exponential,
    "linear": _linear,
    "step": _by_period,
    "warmup_stable_decay": _warmup_stable_decay,
    "warm_restarts": _warm_restarts,
}


def _descend(share: float, end: float) -> float:
    return 1.0 + (end - 1.0) * min(1.0, share)


def _fall(share: float, begin: float, end: float) -> float:
    return end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))


def _period_ends(schedule: ScheduleSettings, epochs: float) -> list[int]:
    """List the epochs at which periods end, up to the first one at or after `epochs`."""
    ends, length = [schedule.period_epochs], schedule.period_epochs
    while ends[-1] < epochs:
        length *= schedule.period_factor
        ends.append(ends[-1] + length)
    return ends
