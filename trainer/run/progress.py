"""A run's progress, which is part of each checkpoint: position, running means, best result so far."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from trainer.base.errors import NonFiniteError
from trainer.group.distributed import ProcessGroup
from trainer.run.best import BestRecord
from trainer.step.learner import StepResult

# The most steps whose figures may wait on the device, a few hundred bytes each.
_MOST_PENDING = 256


@dataclass(slots=True)
class LossMeter:
    """Running sums over `steps` steps: losses, gradient norms, and the number of skipped steps."""

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

    def totals(self, group: ProcessGroup) -> list[float]:
        """Sum loss, gradient norm and skipped steps over the processes; collective."""
        return group.all_reduce_sums([self.loss, self.grad_norm, float(self.skipped)])

    def mean(self, group: ProcessGroup, *, step: int) -> float:
        """Average the loss over processes and over the steps that were not skipped; collective.

        Returns 0 if there was no step yet, NaN if all were skipped.

        Raises:
            NonFiniteError: a loss or a gradient norm was NaN or infinite.
        """
        loss, norm, skipped = self.totals(group)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NonFiniteError(
                f"training diverged: the loss or the gradient is not finite at or before step {step}",
                why=f"summed over {self.steps} steps: loss {loss}, gradient norm {norm}",
                fix="lower optimizer.learning_rate or optimizer.clip_norm; the last checkpoint is intact",
            )
        counted = self.steps * group.size - round(skipped)
        if not counted:
            return math.nan if self.steps else 0.0
        return loss / counted


@dataclass(slots=True)
class Progress:
    """A run's position and results.

    `epoch` counts from 0 and is the one in progress; `step` counts optimizer steps of the whole run.
    An epoch whose `step_in_epoch` is at its end is trained, but not yet finished. `validated_at` is the step of the
    last validation, `epochs_hooked` the number of epochs whose hook was called, `is_ended`: the hook of the run's end
    was called. `sampled_at` is the step of the last samples of this process: no part of checkpoints, because a run that
    resumes there makes the same ones. `skipped_in_a_row` counts the most recent steps that left the weights unchanged.

    Figures of steps stay on the device until `collect_pending`, which waits for them: only then are means and skips
    up to date.
    """

    window: LossMeter = field(default_factory=LossMeter)
    whole_epoch: LossMeter = field(default_factory=LossMeter)
    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    skipped_in_a_row: int = 0
    validated_at: int = 0
    epochs_hooked: int = 0
    is_ended: bool = False
    sampled_at: int = 0
    record: BestRecord = field(default_factory=BestRecord)
    metrics: dict[str, float] = field(default_factory=dict)
    pending: list[StepResult] = field(default_factory=list)
    # Where epochs end within `pending`.
    epoch_ends: list[int] = field(default_factory=list)

    @property
    def position(self) -> tuple[int, ...]:
        """The point of the run at which a checkpoint is taken."""
        return self.epoch, self.step_in_epoch, self.validated_at, self.epochs_hooked, int(self.is_ended)

    def add(self, result: StepResult) -> None:
        """Count one step."""
        self.step += 1
        self.step_in_epoch += 1
        self.pending.append(result)
        if len(self.pending) == _MOST_PENDING:
            self.collect_pending()

    def collect_pending(self) -> None:
        """Fetch the figures of the steps since the last call, in order, so that sums don't depend on when it is."""
        if not self.pending:
            return
        figures = [torch.stack([getattr(one, name) for one in self.pending]).tolist() for name in _FIGURES]
        ends = set(self.epoch_ends)
        for number, (loss, grad_norm, skipped) in enumerate(zip(*figures, strict=True)):
            if number in ends:
                self.whole_epoch.reset()
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
            for meter in (self.window, self.whole_epoch):
                meter.add(loss, grad_norm, is_skipped=bool(skipped))
        if len(self.pending) in ends:
            self.whole_epoch.reset()
        self.pending.clear()
        self.epoch_ends.clear()

    def check_skips(self, most: int) -> None:
        """Check that not too many steps in a row were skipped; call `collect_pending` first.

        Raises:
            NonFiniteError: the last `most` steps were all skipped; raised on every process.
        """
        if self.skipped_in_a_row >= most:
            raise NonFiniteError(
                f"training diverged: the gradients of {self.skipped_in_a_row} steps in a row, up to step {self.step}, "
                "are not finite",
                why="such steps are skipped, and none succeeded in between",
                fix="lower optimizer.learning_rate or optimizer.clip_norm; the last checkpoint is intact",
            )

    def finish_epoch(self) -> None:
        """Advance to the next epoch, without waiting for the figures of this one."""
        self.epoch += 1
        self.step_in_epoch = 0
        if self.pending:
            self.epoch_ends.append(len(self.pending))
        else:
            self.whole_epoch.reset()


_FIGURES = tuple(item.name for item in fields(StepResult))


def dump_progress(progress: Progress, group: ProcessGroup) -> dict[str, Any]:
    """Turn the progress into plain data; collective, because means are summed over the processes.

    Raises:
        NonFiniteError: a loss since the last check was NaN or infinite.
    """
    progress.collect_pending()
    progress.window.mean(group, step=progress.step)
    return {
        "epoch": progress.epoch,
        "step_in_epoch": progress.step_in_epoch,
        "step": progress.step,
        "skipped_in_a_row": progress.skipped_in_a_row,
        "validated_at": progress.validated_at,
        "epochs_hooked": progress.epochs_hooked,
        "is_ended": progress.is_ended,
        "best": progress.record.value,
        "best_epoch": progress.record.epoch,
        "record": asdict(progress.record),
        "metrics": dict(progress.metrics),
        "window": _dump_meter(progress.window, group),
        "whole_epoch": _dump_meter(progress.whole_epoch, group),
    }


def restore_progress(content: dict[str, Any]) -> Progress:
    """Restore the progress from what `dump_progress` returned, in this version or an earlier one."""
    content = {**_read_older(content), **content} if "record" not in content else content
    plain = {key: content[key] for key in _PLAIN}
    return Progress(
        window=_restore_meter(content["window"]),
        whole_epoch=_restore_meter(content["whole_epoch"]),
        record=BestRecord(**content["record"]),
        # A finished epoch's samples were made before it was saved.
        sampled_at=0 if content["step_in_epoch"] else content["step"],
        **plain,
    )


_PLAIN = (
    "epoch",
    "step_in_epoch",
    "step",
    "skipped_in_a_row",
    "validated_at",
    "epochs_hooked",
    "is_ended",
    "metrics",
)


def _read_older(content: dict[str, Any]) -> dict[str, Any]:
    """Complete a progress from before validations were counted: each epoch was validated, each best was saved."""
    best, epoch, step = content["best"], content["best_epoch"], content["step"] - content["step_in_epoch"]
    record = BestRecord(value=best, epoch=epoch, saved_value=best, saved_epoch=epoch, reference=best)
    hooked = content["epoch"]
    return {"validated_at": step, "epochs_hooked": hooked, "is_ended": False, "record": asdict(record)}


def _dump_meter(meter: LossMeter, group: ProcessGroup) -> dict[str, Any]:
    # Divided by the number of processes, so that a run may resume with another number of them.
    return {"totals": [total / group.size for total in meter.totals(group)], "steps": meter.steps}


def _restore_meter(content: dict[str, Any]) -> LossMeter:
    loss, grad_norm, *skipped = content["totals"]  # format 1 had no skipped steps
    return LossMeter(loss=loss, grad_norm=grad_norm, skipped=round(*skipped or (0,)), steps=int(content["steps"]))
