"""What can be done between any two steps: checkpoint the run, or stop it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer.base.errors import TrainerError, first_line
from trainer.checkpoints.saver import TrainingSnapshot
from trainer.checkpoints.store import Rating
from trainer.checkpoints.tree import State
from trainer.group.distributed import ALONE
from trainer.run.control import Decision
from trainer.run.progress import dump_progress
from trainer.run.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """What a validation says of the weights that it measured: `epoch` counts from 1, the best ones have to be saved."""

    epoch: int
    metrics: Mapping[str, float]
    rating: Rating
    is_best: bool


def save(run: Run, *, rated: Rated | None = None, durable: bool = False) -> bool:
    """Checkpoint the run at its current position; collective. Return False if this one has already been saved.

    Args:
        run: the run, between two steps.
        rated: a validation of these weights; they are kept if among the best.
        durable: return only when the checkpoint is on disk; else a thread writes it in the background.

    Raises:
        CheckpointWriteError: this checkpoint or the previous one could not be written.
        NonFiniteError: the loss or the gradient diverged; nothing was saved.
    """
    checkpoints, progress = run.checkpoints, run.progress
    is_new = progress.position != checkpoints.saved_position
    if is_new:
        progress.collect_pending()
        progress.check_skips(run.settings.optimizer.most_skips)
        dumped = dump_progress(progress, run.group)
        ranks = run.group.all_gather(_rank_state(run))
        if _writes_checkpoints(run):
            checkpoints.saver.save(_snapshot(run, dumped, ranks, rated))
        checkpoints.saved_position = progress.position
        run.control.note_save()
    if durable:
        checkpoints.saver.wait()
    return is_new


def save_without_peers(run: Run) -> None:
    """Checkpoint the last whole step from this process alone, while its peers wait in a collective that it can't join.

    Works only if this process holds the whole model. The peers' random states and losses are missing: the run resumes
    with new random states, and its running means are this process's.
    """
    checkpoints = run.checkpoints
    if run.learner.sharding is not None or run.progress.position == checkpoints.saved_position:
        return
    run.learner.rollback.restore()
    try:
        checkpoints.store.folder.mkdir(parents=True, exist_ok=True)
        checkpoints.saver.save(_snapshot(run, dump_progress(run.progress, ALONE), [], None))
        checkpoints.saver.wait()
    except (TrainerError, OSError) as err:
        logger.warning("step %d could not be saved: %s", run.progress.step, first_line(err))


def reserve(run: Run) -> None:
    """Allocate the staging memory in the background, once the optimizer has its state."""
    saver = run.checkpoints.saver
    if not saver.is_reserved and _writes_checkpoints(run):
        state = {**run.learner.state(), **_hook_state(run), "ranks": [_rank_state(run)] * run.group.size}
        saver.reserve(state, best={"model": run.learner.evaluated_weights()})


def handle_requests(run: Run) -> bool:
    """Handle requests from outside: checkpoint if asked, and return True if the run has to stop. Collective.

    Raises:
        CheckpointWriteError: a checkpoint could not be written.
    """
    run.checkpoints.saver.check()
    decision: Decision = run.control.poll()
    if decision.stop:
        run.stop_reason = decision.stop
    is_new = (decision.stop is not None or decision.save) and save(run, durable=decision.stop is not None)
    if is_new and not decision.stop:
        run.console.say(f"checkpoint at step {run.progress.step}; training continues")
    return decision.stop is not None


def _writes_checkpoints(run: Run) -> bool:
    """Return whether this process writes checkpoints, or its shards of them."""
    return run.group.is_main or run.learner.sharding is not None


def _rank_state(run: Run) -> State:
    """Return the state that differs by process."""
    return {
        "rng": run.randomness.training_state(),
        "micro_batch": run.learner.micro_batch,
        "stream": run.train_loader.state(),
    }


def _hook_state(run: Run) -> State:
    """Return what the recipe's hooks want to remember; empty if nothing."""
    state = run.workload.hooks.state
    return {"hooks": state()} if state else {}


def _snapshot(run: Run, progress: State, ranks: list[State], rated: Rated | None) -> TrainingSnapshot:
    state = {
        "fingerprint": run.spec.fingerprint,
        "progress": progress,
        "started_from": run.spec.started_from,
        "micro_batch": run.settings.micro_batch,
        "rng": [rank["rng"] for rank in ranks],
        "micro_batches": [rank["micro_batch"] for rank in ranks],
        "streams": [rank["stream"] for rank in ranks],
        **_hook_state(run),
        **run.learner.state(),
    }
    snapshot = TrainingSnapshot(
        step=run.progress.step,
        state=state,
        is_milestone=run.spec.triggers.is_milestone(run.progress),
        before_write=run.report.metrics_log.sync if run.group.is_main else _nothing,
    )
    if rated is None:
        return snapshot
    best = {
        "fingerprint": run.spec.fingerprint,
        "epoch": rated.epoch,
        "step": run.progress.step,
        "metrics": dict(rated.metrics),
        "rating": rated.rating.dump(),
        "model": run.learner.evaluated_weights(),
    }
    return replace(snapshot, best=best, rating=rated.rating)


def _nothing() -> None:
    """Do nothing: only the main process writes metrics."""
