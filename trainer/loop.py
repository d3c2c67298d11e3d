"""The training loop: step, validate, checkpoint, stop where asked. Owned, so that nothing is hidden."""

import math
import time

from trainer.console import render_epoch, render_figures
from trainer.data import Batch, KeyedSampler, load_batches
from trainer.errors import GroupMemoryError
from trainer.learner import StepResult
from trainer.run import Run, must_stop, reserve, save, save_alone
from trainer.schedule import learning_rate, scale_learning_rate
from trainer.stopwatch import Stopwatch
from trainer.validate import validate


def train(run: Run) -> bool:
    """Train to the last epoch, or until told to stop; the state is checkpointed either way.

    Returns:
        True where the run is complete, False where it was stopped; `run.stop_reason` says by what.

    Raises:
        NonFiniteError: the loss or the gradient diverged; nothing non-finite was checkpointed.
        CheckpointWriteError: a checkpoint could not be written.
    """
    while run.progress.epoch < run.settings.epochs:
        began = time.perf_counter()
        samples_per_second = _train_epoch(run)
        if samples_per_second is None:
            return False
        metrics = validate(run)
        if metrics is None:
            return False
        run.progress.settle()
        loss = run.progress.whole_epoch.mean(run.world, step=run.progress.step)
        line = render_epoch(
            epoch=run.progress.epoch + 1,
            epochs=run.settings.epochs,
            loss=loss,
            metrics=metrics,
            samples_per_second=samples_per_second,
            seconds=time.perf_counter() - began,
        )
        _finish_epoch(run, metrics)
        run.stall_watch.end_epoch()
        run.console.say(line)
    return True


def _train_epoch(run: Run) -> float | None:
    """Train what is left of the epoch; return samples per second, or None where told to stop."""
    progress = run.progress
    batches = load_batches(
        run.workload.train_data,
        _train_sampler(run),
        seed=run.settings.seed,
        device=run.world.device,
        workers=run.settings.workers,
    )
    run.model.train()
    run.stopwatch.restart()
    whole = Stopwatch()
    run.console.start_bar(f"epoch {progress.epoch + 1}", done=progress.step_in_epoch, total=run.plan.steps_per_epoch)
    try:
        for batch in run.stall_watch.follow(run.stopwatch.waiting(batches)):
            if must_stop(run):
                return None
            rate = current_learning_rate(run)
            run.progress.add(_step(run, batch, rate))
            whole.count()
            _after_step(run, rate)
    finally:
        run.console.stop_bar()
    return whole.samples_per_second(run.plan.batch_size)


def _train_sampler(run: Run) -> KeyedSampler:
    return KeyedSampler(
        samples=len(run.workload.train_data),
        batch_size=run.plan.batch_size,
        rank=run.world.rank,
        world_size=run.world.size,
        seed=run.settings.seed,
        epoch=run.progress.epoch,
        first_step=run.progress.step_in_epoch,
    )


def _step(run: Run, batch: Batch, rate: float) -> StepResult:
    try:
        return run.learner.step(batch, rate=rate, number=run.progress.step)
    except GroupMemoryError:
        save_alone(run)
        raise


def current_learning_rate(run: Run) -> float:
    """Compute the rate of the step that comes next."""
    return learning_rate(
        run.settings.schedule,
        peak=scale_learning_rate(run.settings.optimizer, batch_size=run.plan.batch_size),
        step=run.progress.step,
        plan=run.plan,
    )


def _after_step(run: Run, rate: float) -> None:
    run.stopwatch.count()
    run.console.advance_bar()
    if run.progress.step % run.settings.log_every_steps == 0:
        _log_train(run, rate)
    if run.world.is_main:
        run.status_file.touch(run.status)
    reserve(run)
    every = run.settings.checkpoint.every_steps
    is_last = run.progress.step_in_epoch == run.plan.steps_per_epoch
    if every and run.progress.step % every == 0 and not is_last:
        save(run)


def _log_train(run: Run, rate: float) -> None:
    run.progress.settle()
    run.progress.check_skips(run.settings.optimizer.most_skips)
    loss = run.progress.window.mean(run.world, step=run.progress.step)
    skipped = _note_skips(run)
    run.progress.window.reset()
    run.progress.metrics["loss"] = loss
    if run.world.is_main:
        row = {
            "step": run.progress.step,
            "epoch": run.progress.epoch + 1,
            "loss": loss,
            "lr": rate,
            **skipped,
            **run.meter.read(run.stopwatch),
        }
        run.metrics_log.append(row)
        at = f"epoch {run.progress.epoch + 1}/{run.settings.epochs}  step {run.progress.step}/{run.plan.total_steps}"
        run.console.show_figures(at, render_figures(row))
    run.stopwatch.restart()


def _note_skips(run: Run) -> dict[str, float]:
    """Count the steps since the last row whose gradient wasn't finite; empty where there are none."""
    skipped = run.progress.window.skipped
    if not skipped:
        return {}
    run.progress.metrics["skipped_steps"] = run.progress.metrics.get("skipped_steps", 0) + skipped
    run.console.say(f"{skipped} steps up to step {run.progress.step} skipped: their gradients were not finite")
    return {"skipped": skipped}


def _finish_epoch(run: Run, metrics: dict[str, float]) -> None:
    progress = run.progress
    progress.metrics.update(metrics)
    is_best = _is_best(run, metrics)
    if is_best:
        progress.best, progress.best_epoch = metrics[f"val_{run.workload.best}"], progress.epoch + 1
    if run.world.is_main:
        run.metrics_log.append({"step": progress.step, "epoch": progress.epoch + 1, **metrics})
    progress.finish_epoch()
    if is_best or _is_epoch_to_save(run):
        save(run, metrics=metrics)
    if run.world.is_main:
        run.status_file.write("running", run.status())


def _is_epoch_to_save(run: Run) -> bool:
    every, epoch = run.settings.checkpoint.every_epochs, run.progress.epoch
    return epoch == run.settings.epochs or bool(every and epoch % every == 0)


def _is_best(run: Run, metrics: dict[str, float]) -> bool:
    value, best = metrics[f"val_{run.workload.best}"], run.progress.best
    if best is None or not math.isfinite(value):
        return math.isfinite(value)
    return value > best if run.workload.best_is == "max" else value < best
