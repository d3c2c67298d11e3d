"""The learning rate, as a pure function of the step: there is no scheduler state to lose."""

import math

from trainer.config import ScheduleSettings


def learning_rate(schedule: ScheduleSettings, *, peak: float, step: int, total_steps: int) -> float:
    """Compute the rate of one step.

    Linear warm-up from peak / warmup_steps, then constant, or half a cosine down to `final * peak`
    (Loshchilov and Hutter, SGDR, 2017, eq. 5, one period).

    Args:
        schedule: shape, warm-up and end.
        peak: the highest rate.
        step: steps done so far; the first step is 0.
        total_steps: steps of the whole run.
    """
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    if schedule.name == "constant":
        return peak
    share = (step - schedule.warmup_steps) / max(1, total_steps - schedule.warmup_steps)
    low = schedule.final * peak
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))
