"""One run with all of its parts, and what can be done between any two steps: checkpoint it, stop it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from trainer.base.config import Settings
from trainer.base.errors import TrainerError, first_line
from trainer.base.recipe import Workload
from trainer.base.rng import capture_rng
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import State
from trainer.data.loader import BatchLoader
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.report.console import Console, render_metric
from trainer.report.profile import StepProfiler
from trainer.report.rows import Meter
from trainer.report.status import MetricsLog, Status, StatusFile
from trainer.report.stopwatch import Stopwatch
from trainer.run.control import Control
from trainer.run.progress import Progress, dump_progress
from trainer.run.stall import StallWatchdog
from trainer.step.batch import BatchPlan
from trainer.step.learner import Learner

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Run:
    """All parts of one run."""

    settings: Settings
    workload: Workload
    group: ProcessGroup
    plan: BatchPlan
    fingerprint: dict[str, object]
    learner: Learner
    train_loader: BatchLoader
    validation_loader: BatchLoader
    progress: Progress
    store: CheckpointStore
    saver: Saver
    status_file: StatusFile
    metrics_log: MetricsLog
    control: Control
    console: Console
    meter: Meter
    stall_watchdog: StallWatchdog
    profiler: StepProfiler
    rebuild: Callable[[], nn.Module]
    """Builds a new model of the recipe."""
    saved_position: tuple[int, int] = (0, 0)
    stop_reason: str | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def writes_checkpoints(self) -> bool:
        """Whether this process writes checkpoints, or its shards of them."""
        return self.group.is_main or self.learner.sharding is not None

    @property
    def model(self) -> nn.Module:
        """The model in training, without wrappers."""
        return self.learner.model

    def status(self) -> Status:
        """Return the run's current status."""
        return Status(
            epoch=min(self.progress.epoch + 1, self.settings.epochs),
            epochs=self.settings.epochs,
            step=self.progress.step,
            steps=self.plan.total_steps,
            metrics=self.progress.metrics,
            checkpoint=self.store.newest_name(),
        )


def save(run: Run, *, metrics: Mapping[str, float] | None = None, durable: bool = False) -> bool:
    """Checkpoint the run at its current step; collective. Return False if this point has already been saved.

    Args:
        run: the run, between two steps.
        metrics: the validation metrics of these weights, if there are any; the weights are kept if among the best.
        durable: return only when the checkpoint is on disk; else a thread writes it in the background.

    Raises:
        CheckpointWriteError: this checkpoint or the previous one could not be written.
        NonFiniteError: the loss or the gradient diverged; nothing was saved.
    """
    is_new = run.progress.position != run.saved_position
    if is_new:
        run.progress.collect_pending()
        run.progress.check_skips(run.settings.optimizer.most_skips)
        progress = dump_progress(run.progress, run.group)
        ranks = run.group.all_gather(_rank_state(run))
        if run.writes_checkpoints:
            run.saver.save(_snapshot(run, progress, ranks, metrics))
        run.saved_position = run.progress.position
        run.control.note_save()
    if durable:
        run.saver.wait()
    return is_new


def save_without_peers(run: Run) -> None:
    """Checkpoint the last whole step from this process alone, while its peers wait in a collective that it can't join.

    Works only if this process holds the whole model. The peers' random states and losses are missing: the run resumes
    with new random states, and its running means are this process's.
    """
    if run.learner.sharding is not None or run.progress.position == run.saved_position:
        return
    run.learner.rollback.restore()
    try:
        run.store.folder.mkdir(parents=True, exist_ok=True)
        run.saver.save(_snapshot(run, dump_progress(run.progress, ALONE), [], None))
        run.saver.wait()
    except (TrainerError, OSError) as err:
        logger.warning("step %d could not be saved: %s", run.progress.step, first_line(err))


def reserve(run: Run) -> None:
    """Allocate the staging memory in the background, once the optimizer has its state."""
    if run.writes_checkpoints and not run.saver.is_reserved:
        run.saver.reserve({**run.learner.state(), "ranks": [_rank_state(run)] * run.group.size})


def handle_requests(run: Run) -> bool:
    """Handle requests from outside: checkpoint if asked, and return True if the run has to stop. Collective.

    Raises:
        CheckpointWriteError: a checkpoint could not be written.
    """
    run.saver.check()
    decision = run.control.poll()
    if decision.stop:
        run.stop_reason = decision.stop
    is_new = (decision.stop is not None or decision.save) and save(run, durable=decision.stop is not None)
    if is_new and not decision.stop:
        run.console.say(f"checkpoint at step {run.progress.step}; training continues")
    return decision.stop is not None


def describe_best(run: Run) -> str:
    """Describe the best epoch so far and its metric."""
    if run.progress.best is None:
        return "not validated"
    best = render_metric(f"val_{run.workload.best}", run.progress.best)
    return f"best {best} (epoch {run.progress.best_epoch})"


def _rank_state(run: Run) -> State:
    """Return the state that differs by process."""
    return {"rng": capture_rng(run.group.device), "micro_batch": run.learner.micro_batch}


def _snapshot(run: Run, progress: State, ranks: list[State], metrics: Mapping[str, float] | None) -> TrainingSnapshot:
    state = {
        "fingerprint": run.fingerprint,
        "progress": progress,
        "micro_batch": run.settings.micro_batch,
        "rng": [rank["rng"] for rank in ranks],
        "micro_batches": [rank["micro_batch"] for rank in ranks],
        **run.learner.state(),
    }
    before_write = run.metrics_log.sync if run.group.is_main else _nothing
    snapshot = TrainingSnapshot(step=run.progress.step, state=state, before_write=before_write)
    if metrics is None:
        return snapshot
    name = f"val_{run.workload.best}"
    rating = Rating(metric=name, value=metrics[name], best_is=run.workload.best_is)
    best = {
        "fingerprint": run.fingerprint,
        "epoch": run.progress.epoch,
        "step": run.progress.step,
        "metrics": dict(metrics),
        "rating": rating.dump(),
        "model": run.learner.evaluated_weights(),
    }
    return replace(snapshot, best=best, rating=rating)


def _nothing() -> None:
    """Do nothing: only the main process writes metrics."""
