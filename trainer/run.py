"""One run with all of its parts, and what can be done to it at any point: checkpoint it, stop it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from trainer.batch import BatchPlan
from trainer.checkpoints.saver import Saver, Snapshot
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import State
from trainer.config import Settings
from trainer.console import Console, render_metric
from trainer.control import Control
from trainer.distributed import ALONE, World
from trainer.errors import TrainerError, first_line
from trainer.learner import Learner
from trainer.progress import Progress, dump_progress
from trainer.recipe import Workload
from trainer.rng import capture_rng
from trainer.rows import Meter
from trainer.stall import StallWatch
from trainer.status import MetricsLog, Status, StatusFile
from trainer.stopwatch import Stopwatch

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Run:
    """All parts of one run."""

    settings: Settings
    workload: Workload
    world: World
    plan: BatchPlan
    fingerprint: dict[str, object]
    learner: Learner
    progress: Progress
    store: CheckpointStore
    saver: Saver
    status_file: StatusFile
    metrics_log: MetricsLog
    control: Control
    console: Console
    meter: Meter
    stall_watch: StallWatch
    rebuild: Callable[[], nn.Module]
    """Makes the recipe's model anew."""
    saved_position: tuple[int, int] = (0, 0)
    stop_reason: str | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def writes_checkpoints(self) -> bool:
        """Whether this process writes them, or its part of them."""
        return self.world.is_main or self.learner.sharding is not None

    @property
    def model(self) -> nn.Module:
        """The bare model in training."""
        return self.learner.model

    def status(self) -> Status:
        """Tell where the run is."""
        return Status(
            epoch=min(self.progress.epoch + 1, self.settings.epochs),
            epochs=self.settings.epochs,
            step=self.progress.step,
            steps=self.plan.total_steps,
            metrics=self.progress.metrics,
            checkpoint=self.store.newest_name(),
        )


def save(run: Run, *, metrics: Mapping[str, float] | None = None, durable: bool = False) -> bool:
    """Checkpoint the run as it is; collective. Returns False where this very point was saved before.

    Args:
        run: the run, between two steps.
        metrics: what a validation just said of these weights; they are kept where they are among the best.
        durable: return only once the checkpoint is on disk; else a thread writes it meanwhile.

    Raises:
        CheckpointWriteError: it, or the one before, could not be written.
        NonFiniteError: the loss or the gradient diverged; nothing was saved.
    """
    is_new = run.progress.position != run.saved_position
    if is_new:
        run.progress.settle()
        run.progress.check_skips(run.settings.optimizer.most_skips)
        progress = dump_progress(run.progress, run.world)
        ranks = run.world.gather(_rank_state(run))
        if run.writes_checkpoints:
            run.saver.save(_snapshot(run, progress, ranks, metrics))
        run.saved_position = run.progress.position
        run.control.note_save()
    if durable:
        run.saver.wait()
    return is_new


def save_alone(run: Run) -> None:
    """Checkpoint the last whole step by this process, which can't go on while the others wait in a collective.

    Only where it holds the whole model. The others' random states and losses are not to be had: the run goes on with
    new draws, and its means are those of this process.
    """
    if run.learner.sharding is not None or run.progress.position == run.saved_position:
        return
    run.learner.rewind.restore()
    try:
        run.store.folder.mkdir(parents=True, exist_ok=True)
        run.saver.save(_snapshot(run, dump_progress(run.progress, ALONE), [], None))
        run.saver.wait()
    except (TrainerError, OSError) as err:
        logger.warning("step %d could not be saved: %s", run.progress.step, first_line(err))


def reserve(run: Run) -> None:
    """Have the memory that a save copies to made ready beside the training, once the optimizer has its state."""
    if run.writes_checkpoints and not run.saver.is_reserved:
        run.saver.reserve({**run.learner.state(), "ranks": [_rank_state(run)] * run.world.size})


def must_stop(run: Run) -> bool:
    """Do what is asked from outside: checkpoint, and return True where the run has to end. Collective.

    Raises:
        CheckpointWriteError: a checkpoint that was being written could not be.
    """
    run.saver.check()
    decision = run.control.poll()
    if decision.stop:
        run.stop_reason = decision.stop
    is_new = (decision.stop is not None or decision.save) and save(run, durable=decision.stop is not None)
    if is_new and not decision.stop:
        run.console.say(f"checkpoint at step {run.progress.step}; going on")
    return decision.stop is not None


def describe_best(run: Run) -> str:
    """Say which epoch was best, and by what."""
    if run.progress.best is None:
        return "not validated"
    best = render_metric(f"val_{run.workload.best}", run.progress.best)
    return f"best {best} (epoch {run.progress.best_epoch})"


def _rank_state(run: Run) -> State:
    """Take what every process has of its own."""
    return {"rng": capture_rng(run.world.device), "micro_batch": run.learner.micro_batch}


def _snapshot(run: Run, progress: State, ranks: list[State], metrics: Mapping[str, float] | None) -> Snapshot:
    state = {
        "fingerprint": run.fingerprint,
        "progress": progress,
        "micro_batch": run.settings.micro_batch,
        "rng": [rank["rng"] for rank in ranks],
        "micro_batches": [rank["micro_batch"] for rank in ranks],
        **run.learner.state(),
    }
    before = run.metrics_log.sync if run.world.is_main else _nothing
    snapshot = Snapshot(step=run.progress.step, state=state, before=before)
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
    """Do nothing: the main process alone keeps the metrics."""
