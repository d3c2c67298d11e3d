"""How far a run is: its position, its running means, its best result so far. All of it is in checkpoints."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from trainer.distributed import World
from trainer.errors import NonFiniteError
from trainer.learner import StepResult

# So many steps' figures stay on the device at most: some hundred bytes each.
_MOST_PENDING = 256


@dataclass(slots=True)
class LossMeter:
    """A mean over `steps` steps: sums of losses and gradient norms, and how many steps were skipped."""

    loss: float = 0.0
    grad_norm: float = 0.0
    skipped: int = 0
    steps: int = 0

    def add(self, loss: float, grad_norm: float, *, is_skipped: bool) -> None:
        """Add one step's figures; a skipped step's loss doesn't count."""
        self.steps += 1
        if is_skipped:
            self.skipped += 1
        else:
            self.loss += loss
            self.grad_norm += grad_norm

    def reset(self) -> None:
        """Start a new mean."""
        self.loss, self.grad_norm, self.skipped, self.steps = 0.0, 0.0, 0, 0

    def totals(self, world: World) -> list[float]:
        """Add loss, gradient norm and skipped steps up over the processes; collective."""
        return world.add([self.loss, self.grad_norm, float(self.skipped)])

    def mean(self, world: World, *, step: int) -> float:
        """Average the loss over the steps that were not skipped and over processes; collective.

        0 where there was no step yet, NaN where all were skipped.

        Raises:
            NonFiniteError: a loss or a gradient norm was NaN or infinite.
        """
        loss, norm, skipped = self.totals(world)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NonFiniteError(
                f"training diverged: the loss or the gradient is not finite at or before step {step}",
                why=f"summed over {self.steps} steps: loss {loss}, gradient norm {norm}",
                fix="lower optimizer.learning_rate or optimizer.clip_norm; the last checkpoint is sound",
            )
        counted = self.steps * world.size - round(skipped)
        if not counted:
            return math.nan if self.steps else 0.0
        return loss / counted


@dataclass(slots=True)
class Progress:
    """A run's position and results.

    `epoch` counts from 0 and is the one in progress; `step` counts optimizer steps of the whole run.
    An epoch whose `step_in_epoch` is at its end is trained, but not yet validated. `skipped_in_a_row` are the last
    steps that left the weights as they were.

    Figures of steps stay on the device until `settle`, which waits for it: means and skips are right from then on.
    """

    window: LossMeter = field(default_factory=LossMeter)
    whole_epoch: LossMeter = field(default_factory=LossMeter)
    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    skipped_in_a_row: int = 0
    best: float | None = None
    best_epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    pending: list[StepResult] = field(default_factory=list)

    @property
    def position(self) -> tuple[int, int]:
        """The point of the run that a checkpoint stands for."""
        return self.epoch, self.step_in_epoch

    def add(self, result: StepResult) -> None:
        """Count one step."""
        self.step += 1
        self.step_in_epoch += 1
        self.pending.append(result)
        if len(self.pending) == _MOST_PENDING:
            self.settle()

    def settle(self) -> None:
        """Get the figures of the steps since the last time, in their order, so that sums never depend on when."""
        if not self.pending:
            return
        figures = [torch.stack([getattr(one, name) for one in self.pending]).tolist() for name in _FIGURES]
        self.pending.clear()
        for loss, grad_norm, skipped in zip(*figures, strict=True):
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
            for meter in (self.window, self.whole_epoch):
                meter.add(loss, grad_norm, is_skipped=bool(skipped))

    def check_skips(self, most: int) -> None:
        """Make sure that training goes on; what was counted is settled.

        Raises:
            NonFiniteError: the last `most` steps were all skipped, on every process alike.
        """
        if self.skipped_in_a_row >= most:
            raise NonFiniteError(
                f"training diverged: the gradients of {self.skipped_in_a_row} steps in a row, up to step {self.step}, "
                "are not finite",
                why="such steps are skipped, but no other came",
                fix="lower optimizer.learning_rate or optimizer.clip_norm; the last checkpoint is sound",
            )

    def finish_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch += 1
        self.step_in_epoch = 0
        self.whole_epoch.reset()


_FIGURES = tuple(item.name for item in fields(StepResult))


def dump_progress(progress: Progress, world: World) -> dict[str, Any]:
    """Turn the progress into plain data; collective, because means are summed over processes.

    Raises:
        NonFiniteError: a loss since the last check was NaN or infinite.
    """
    progress.settle()
    progress.window.mean(world, step=progress.step)
    return {
        "epoch": progress.epoch,
        "step_in_epoch": progress.step_in_epoch,
        "step": progress.step,
        "skipped_in_a_row": progress.skipped_in_a_row,
        "best": progress.best,
        "best_epoch": progress.best_epoch,
        "metrics": dict(progress.metrics),
        "window": _dump_meter(progress.window, world),
        "whole_epoch": _dump_meter(progress.whole_epoch, world),
    }


def restore_progress(content: dict[str, Any]) -> Progress:
    """Make the progress that `dump_progress` wrote."""
    plain = {key: value for key, value in content.items() if key not in ("window", "whole_epoch")}
    return Progress(
        window=_restore_meter(content["window"]), whole_epoch=_restore_meter(content["whole_epoch"]), **plain
    )


def _dump_meter(meter: LossMeter, world: World) -> dict[str, Any]:
    # Divided by the number of processes, so that a run may go on with another number of them.
    return {"totals": [total / world.size for total in meter.totals(world)], "steps": meter.steps}


def _restore_meter(content: dict[str, Any]) -> LossMeter:
    loss, grad_norm, *skipped = content["totals"]  # format 1 knew no skipped steps
    return LossMeter(loss=loss, grad_norm=grad_norm, skipped=round(*skipped or (0,)), steps=int(content["steps"]))
