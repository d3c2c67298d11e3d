"""One run with its parts: what is fixed, what moves, what writes checkpoints, and what reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from trainer.base.config import Settings
from trainer.base.recipe import Workload
from trainer.base.rng import RandomStreams
from trainer.base.sources import Batch
from trainer.checkpoints.saver import Saver
from trainer.checkpoints.store import CheckpointStore
from trainer.data.loader import BatchLoader
from trainer.group.distributed import ProcessGroup
from trainer.report.console import Console
from trainer.report.rows import Meter
from trainer.report.status import MetricsLog, Status, StatusFile
from trainer.report.stopwatch import Stopwatch
from trainer.run.control import Control
from trainer.run.progress import Progress
from trainer.run.stall import StallWatchdog
from trainer.step.batch import BatchPlan
from trainer.step.learner import Learner


class StepObserver(Protocol):
    """Something that the loop tells of each step, on every process: the profiler."""

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
    """What is fixed from the start of a run on. `rebuild` builds a new model of the recipe."""

    name: str
    settings: Settings
    workload: Workload
    group: ProcessGroup
    plan: BatchPlan
    fingerprint: dict[str, Any]
    rebuild: Callable[[], nn.Module]


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """Where a run is saved, and the position that was saved last."""

    store: CheckpointStore
    saver: Saver
    saved_position: tuple[int, ...] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What others see of a run, and the clocks behind it."""

    console: Console
    status_file: StatusFile
    metrics_log: MetricsLog
    meter: Meter
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
            steps=self.plan.total_steps,
            metrics=self.progress.metrics,
            checkpoint=self.checkpoints.store.newest_name(),
        )
