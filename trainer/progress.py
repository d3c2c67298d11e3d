"""How far a run is: its position, its running means, its best result so far. All of it is in checkpoints."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from trainer.distributed import World
from trainer.errors import NonFiniteError


@dataclass(slots=True)
class LossMeter:
    """A mean that is added up on the device: adding doesn't wait for it.

    `totals` is (3,): losses, gradient norms and skipped steps, summed over `steps` steps.
    """

    totals: torch.Tensor
    steps: int = 0

    def add(self, figures: torch.Tensor) -> None:
        """Add one step's figures (3,)."""
        self.totals += figures
        self.steps += 1

    @property
    def skipped(self) -> int:
        """Steps that left the weights as they were, the same on every process."""
        return int(self.totals[2])

    def reset(self) -> None:
        """Start a new mean."""
        self.totals.zero_()
        self.steps = 0

    def mean(self, world: World, *, step: int) -> float:
        """Average the loss over the steps that were not skipped and over processes; collective.

        0 where there was no step yet, NaN where all were skipped.

        Raises:
            NonFiniteError: a loss or a gradient norm was NaN or infinite.
        """
        totals = world.sum(self.totals)
        loss, norm, skipped = map(float, totals.tolist())
        if not torch.isfinite(totals).all():
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
    An epoch whose `step_in_epoch` is at its end is trained, but not yet validated.
    """

    window: LossMeter
    whole_epoch: LossMeter
    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def position(self) -> tuple[int, int]:
        """The point of the run that a checkpoint stands for."""
        return self.epoch, self.step_in_epoch

    def finish_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch += 1
        self.step_in_epoch = 0
        self.whole_epoch.reset()


def figures_of_step(loss: torch.Tensor, grad_norm: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """Put one step's figures, scalars, together as a meter adds them; a skipped step's loss doesn't count."""
    is_counted = skipped == 0
    return torch.stack((torch.where(is_counted, loss, 0.0), torch.where(is_counted, grad_norm, 0.0), skipped))


def new_progress(device: torch.device) -> Progress:
    """Make the progress of a run that starts from the beginning."""
    return Progress(window=_new_meter(device), whole_epoch=_new_meter(device))


def dump_progress(progress: Progress, world: World) -> dict[str, Any]:
    """Turn the progress into plain data; collective, because means are summed over processes.

    Raises:
        NonFiniteError: a loss since the last check was NaN or infinite.
    """
    progress.window.mean(world, step=progress.step)
    return {
        "epoch": progress.epoch,
        "step_in_epoch": progress.step_in_epoch,
        "step": progress.step,
        "best": progress.best,
        "best_epoch": progress.best_epoch,
        "metrics": dict(progress.metrics),
        "window": _dump_meter(progress.window, world),
        "whole_epoch": _dump_meter(progress.whole_epoch, world),
    }


def restore_progress(content: dict[str, Any], world: World) -> Progress:
    """Make the progress that `dump_progress` wrote."""
    plain = {key: value for key, value in content.items() if key not in ("window", "whole_epoch")}
    return Progress(
        window=_restore_meter(content["window"], world),
        whole_epoch=_restore_meter(content["whole_epoch"], world),
        **plain,
    )


def _new_meter(device: torch.device) -> LossMeter:
    return LossMeter(totals=torch.zeros(3, dtype=torch.float64, device=device))


def _dump_meter(meter: LossMeter, world: World) -> dict[str, Any]:
    # Divided by the number of processes, so that a run may go on with another number of them.
    return {"totals": (world.sum(meter.totals) / world.size).tolist(), "steps": meter.steps}


def _restore_meter(content: dict[str, Any], world: World) -> LossMeter:
    meter = _new_meter(world.device)
    totals = torch.tensor(content["totals"], dtype=torch.float64, device=world.device)
    meter.totals[: len(totals)] += totals  # format 1 knew no skipped steps
    meter.steps = int(content["steps"])
    return meter
