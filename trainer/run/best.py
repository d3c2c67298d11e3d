"""The best validation so far: by which metric, which weights were saved, and how long ago the last gain was. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

from trainer.base.config import ValidateSettings
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Workload

Direction = Literal["min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestMetric:
    """The metric that selects the best weights, and its better direction."""

    name: str
    best_is: Direction

    def pick(self, metrics: dict[str, float]) -> float:
        """Return this metric's value.

        Raises:
            BadRequestError: validation doesn't measure it.
        """
        if self.name in metrics:
            return metrics[self.name]
        raise BadRequestError(
            f"validation does not measure {self.name}, which selects the best weights",
            why=f"it measures {', '.join(sorted(metrics))}",
            fix=f"choose one of these: --set validate.best={min(metrics, default='val_loss').removeprefix('val_')}",
        )

    def gain(self, value: float, over: float | None) -> float:
        """Return by how much a value is better than another one; infinity over none, -infinity if it isn't finite."""
        if not math.isfinite(value):
            return -math.inf
        if over is None:
            return math.inf
        return value - over if self.best_is == "max" else over - value


@dataclass(slots=True)
class BestRecord:
    """The best result by one metric, a part of each checkpoint. Epochs count from 1; 0: none yet.

    `value` is the best that was seen, `saved_value` the best whose weights were saved. `reference` is the last value
    that counted as a gain, and `waited` the number of validations since.
    """

    metric: str = ""
    value: float | None = None
    epoch: int = 0
    saved_value: float | None = None
    saved_epoch: int = 0
    saved_step: int = 0
    reference: float | None = None
    waited: int = 0

    @property
    def is_saved(self) -> bool:
        """Whether the best weights that were seen were saved."""
        return self.value == self.saved_value

    def add(self, metric: BestMetric, value: float, *, epoch: int, least_gain: float) -> None:
        """Note a validation's result. A change of the metric starts anew."""
        if self.metric not in ("", metric.name):
            self.__init__()  # type: ignore[misc]  # all fields' defaults
        self.metric = metric.name
        if metric.gain(value, self.value) > 0:
            self.value, self.epoch = value, epoch
        gain = metric.gain(value, self.reference)
        if gain > 0 and gain >= least_gain:
            self.reference, self.waited = value, 0
        else:
            self.waited += 1

    def is_to_save(self, metric: BestMetric, value: float, *, step: int, gap_steps: int) -> bool:
        """Return whether these weights are better than the saved ones, which are at least `gap_steps` old."""
        is_first = self.saved_value is None
        return metric.gain(value, self.saved_value) > 0 and (is_first or step - self.saved_step >= gap_steps)

    def note_saved(self, value: float, *, epoch: int, step: int) -> None:
        """Note that these weights are saved as the best."""
        self.saved_value, self.saved_epoch, self.saved_step = value, epoch, step


def choose_best_metric(settings: ValidateSettings, workload: Workload) -> BestMetric:
    """Choose the metric by the settings, else by the recipe.

    Raises:
        BadRequestError: it isn't clear whether more of it is better.
    """
    name = settings.best.removeprefix("val_") or workload.best
    if settings.best_is:
        return BestMetric(name=f"val_{name}", best_is=settings.best_is)
    if name == workload.best:
        return BestMetric(name=f"val_{name}", best_is=workload.best_is)
    if name == "loss":
        return BestMetric(name="val_loss", best_is="min")
    raise BadRequestError(
        f"--set validate.best={name} needs its better direction",
        why=f"the recipe says it only of its own metric, {workload.best}",
        fix=f"add --set validate.best_is=max if more {name} is better, else min",
    )
