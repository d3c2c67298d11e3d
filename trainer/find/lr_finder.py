"""The learning-rate range test: raises the rate with every step, and suggests rates from the loss curve.

Smith, Cyclical Learning Rates (2017), section 3.3.
"""

import copy
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.base.errors import BadRequestError
from trainer.base.recipe import Moment
from trainer.base.rng import capture_rng, restore_rng
from trainer.base.sources import Batch
from trainer.data.loader import BatchLoader
from trainer.step.learner import Learner

SMOOTHING = 0.05
"""Share of a new loss in the running mean."""
DIVERGED = 4.0
"""The test ends when the smoothed loss is this many times the best one."""
_FEWEST_POINTS = 10
_NOISY, _DIVERGING = 10, 5
"""Points at both ends where the steepest fall isn't looked for: a mean of few losses, and the loss about to diverge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSweep:
    """Rates in ascending order, and the smoothed loss after each."""

    rates: list[float]
    losses: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Three estimates of the peak rate from the same curve, usually from cautious to bold.

    `steepest` is where the loss falls fastest, `valley` lies two thirds down the longest fall (fastai's default), and
    `before_divergence` is a tenth of the rate with the lowest loss.
    """

    steepest: float
    valley: float
    before_divergence: float


def sweep_rates(
    step: Callable[[float], float], *, lowest: float = 1e-6, highest: float = 1.0, steps: int = 200
) -> LearningRateSweep:
    """Make steps with geometrically growing rates until the loss diverges.

    Args:
        step: makes one step at a rate and returns its loss.
        lowest: the first rate.
        highest: the last rate.
        steps: the maximum number of steps.
    """
    sweep = LearningRateSweep(rates=[], losses=[])
    mean = 0.0
    for number in range(steps):
        rate = lowest * (highest / lowest) ** (number / max(1, steps - 1))
        mean += SMOOTHING * (step(rate) - mean)
        smoothed = mean / (1 - (1 - SMOOTHING) ** (number + 1))
        if not math.isfinite(smoothed) or smoothed > DIVERGED * min(sweep.losses, default=math.inf):
            break
        sweep.rates.append(rate)
        sweep.losses.append(smoothed)
    return sweep


def suggest_rate(sweep: LearningRateSweep) -> Suggestion:
    """Suggest rates from a sweep.

    Raises:
        BadRequestError: the loss diverged, or the sweep ended, before there was a curve.
    """
    if len(sweep.rates) < _FEWEST_POINTS:
        raise BadRequestError(
            f"the loss diverged after {len(sweep.rates)} steps",
            why=f"a curve needs at least {_FEWEST_POINTS} steps",
            fix="start with a lower rate (--lowest), or make more steps (--steps)",
        )
    losses = np.asarray(sweep.losses)
    return Suggestion(
        steepest=sweep.rates[_find_steepest(losses)],
        valley=sweep.rates[_find_valley(sweep.losses)],
        before_divergence=sweep.rates[int(losses.argmin())] / 10,
    )


def sweep_learner(
    learner: Learner, batches: Iterator[Batch], *, lowest: float = 1e-6, highest: float = 1.0, steps: int = 200
) -> LearningRateSweep:
    """Sweep a learner, then restore it and the random generators."""
    device = learner.group.device
    before, rng = copy.deepcopy(learner.state()), capture_rng(device)
    learner.model.train()

    def step(rate: float) -> float:
        loss = learner.step(next(batches), rate=rate, moment=Moment(step=0)).loss
        return float(learner.group.all_reduce_sum(loss)) / learner.group.size

    try:
        return sweep_rates(step, lowest=lowest, highest=highest, steps=steps)
    finally:
        learner.load(before)
        restore_rng(rng, device)


def repeat_batches(loader: BatchLoader, *, batch_size: int) -> Generator[Batch, None, None]:
    """Yield this process's shares of training batches, epoch after epoch, endlessly."""
    for epoch in count():
        yield from loader.batches(epoch=epoch, batch_size=batch_size)


def draw_sweep(sweep: LearningRateSweep, suggestion: Suggestion, path: Path) -> None:
    """Draw loss over rate with the suggested rates marked."""
    # Imported here, because it takes half a second that training doesn't need.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(sweep.rates, sweep.losses, color="#1f5fa8", label="loss, smoothed")
    marks = {
        "steepest": (suggestion.steepest, "#d9731a"),
        "valley": (suggestion.valley, "#2a7f4f"),
        "before divergence": (suggestion.before_divergence, "#8a3ab0"),
    }
    for name, (rate, colour) in marks.items():
        axes.axvline(rate, color=colour, linestyle="--", label=f"{name}: {rate:.2g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
    axes.legend()
    figure.savefig(path, dpi=150)


def _find_steepest(losses: NDArray[np.float64]) -> int:
    """Find where the loss falls most from one rate to the next, in a long curve without its ends."""
    slopes = np.gradient(losses)
    if len(losses) < _NOISY + _DIVERGING + _FEWEST_POINTS:
        return int(slopes.argmin())
    return _NOISY + int(slopes[_NOISY:-_DIVERGING].argmin())


def _find_valley(losses: Sequence[float]) -> int:
    """Find the middle of the second third of the longest decreasing subsequence, as fastai does."""
    lengths = [1] * len(losses)
    for later in range(len(losses)):
        falls = [lengths[earlier] + 1 for earlier in range(later) if losses[later] < losses[earlier]]
        lengths[later] = max(falls, default=1)
    end = int(np.argmax(lengths))
    third = lengths[end] / 3
    return max(0, end - lengths[end]) + int(third) + int(third / 2)
