"""One run with its parts: what is fixed, what moves, what writes checkpoints, and what reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from trainer.base.config import Settings
from trainer.base.recipe import Moment, Workload
from trainer.base.rng import RandomStreams
from trainer.base.sources import Batch
from trainer.checkpoints.saver import Saver
from trainer.checkpoints.store import CheckpointStore
from trainer.data.loader import BatchLoader
from trainer.group.distributed import ProcessGroup
from trainer.report.console import Console
from trainer.report.publish.best_push import BestPusher
from trainer.report.rows import Meter
from trainer.report.samples import SampleFolder
from trainer.report.status import MetricsLog, Status, StatusFile
from trainer.report.stopwatch import Lap, Stopwatch
from trainer.run.best import BestMetric
from trainer.run.control import Control
from trainer.run.progress import Progress
from trainer.run.stall import StallWatchdog
from trainer.run.triggers import Triggers
from trainer.step.batch import BatchPlan
from trainer.step.learner import Learner


class StepObserver(Protocol):
    """Something that watches each step, on every process: the profiler."""

    def follow(self, batches: Iterator[Batch], *, done: int) -> Iterator[Batch]:
        """Return an epoch's batches, as the loop waits for them; `done` steps were made before."""
        ...

    def begin_step(self, step: int) -> None:
        """Note that a step is about to begin; `step` counts from 0."""
        ...

    def end_step(self, step: int) -> None:
        """Note that the step's work is queued on the device."""
        ...

    def close(self) -> None:
        """Note that training is over, stopped or failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What is fixed from the start of a run on.

    `rate_of` returns a step's learning rate. `started_from` are the weights or the checkpoint that the run was started
    from, empty if from nothing. `rebuild` builds a new model of the recipe.
    """

    name: str
    description: str
    settings: Settings
    workload: Workload
    group: ProcessGroup
    plan: BatchPlan
    fingerprint: dict[str, Any]
    triggers: Triggers
    best: BestMetric
    rate_of: Callable[[int], float]
    started_from: str
    rebuild: Callable[[], nn.Module]


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """Where a run is saved, and the position that was saved last."""

    store: CheckpointStore
    saver: Saver
    saved_position: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What others see of a run, and the clocks behind it."""

    console: Console
    status_file: StatusFile
    metrics_log: MetricsLog
    samples: SampleFolder
    meter: Meter
    lap: Lap
    pusher: BestPusher
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


@dataclass(slots=True, kw_only=True)
class Run:
    """All parts of one run on one process."""

    spec: RunSpec
    learner: Learner
    progress: Progress
    randomness: RandomStreams
    train_loader: BatchLoader
    validation_loader: BatchLoader
    checkpoints: Checkpoints
    report: Report
    control: Control
    stall_watchdog: StallWatchdog
    observers: list[StepObserver] = field(default_factory=list)
    stop_reason: str | None = None

    @property
    def settings(self) -> Settings:
        """The run's settings."""
        return self.spec.settings

    @property
    def workload(self) -> Workload:
        """The recipe's workload."""
        return self.spec.workload

    @property
    def group(self) -> ProcessGroup:
        """All processes of the run."""
        return self.spec.group

    @property
    def plan(self) -> BatchPlan:
        """How batches are split."""
        return self.spec.plan

    @property
    def model(self) -> nn.Module:
        """The model in training, without wrappers."""
        return self.learner.model

    @property
    def console(self) -> Console:
        """The console, which only the main process prints to."""
        return self.report.console

    def status(self) -> Status:
        """Return the run's current status."""
        return Status(
            epoch=min(self.progress.epoch + 1, self.settings.epochs),
            epochs=self.settings.epochs,
            step=self.progress.step,
            steps=self.spec.triggers.total_steps,
            metrics=self.progress.metrics,
            checkpoint=self.checkpoints.store.newest_name(),
            ended_early=self.spec.triggers.early_end(self.progress),
        )


def current_moment(run: Run) -> Moment:
    """Return where the run is before its next step."""
    step = run.progress.step
    return Moment(step=step, epoch=run.progress.epoch, fraction=step / run.spec.triggers.total_steps)
