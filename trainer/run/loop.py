"""The training loop: step, validate, checkpoint, stop on request."""

import math
import time

from trainer.base.errors import GroupMemoryError
from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.report.console import render_epoch, render_figures
from trainer.report.stopwatch import Stopwatch
from trainer.run.run import Run
from trainer.run.saving import handle_requests, reserve, save, save_without_peers
from trainer.run.validate import validate
from trainer.step.learner import StepResult
from trainer.step.schedule import learning_rate, scale_learning_rate


def train(run: Run) -> bool:
    """Train to the last epoch, or until asked to stop; save a checkpoint in both cases.

    Returns:
        True if the run is complete, False if it was stopped; `run.stop_reason` says by what.

    Raises:
        NonFiniteError: the loss or the gradient diverged; no checkpoint has non-finite values.
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
        run.progress.collect_pending()
        loss = run.progress.whole_epoch.mean(run.group, step=run.progress.step)
        line = render_epoch(
            epoch=run.progress.epoch + 1,
            epochs=run.settings.epochs,
            loss=loss,
            metrics=metrics,
            samples_per_second=samples_per_second,
            seconds=time.perf_counter() - began,
        )
        _finish_epoch(run, metrics)
        run.stall_watchdog.end_epoch()
        run.console.say(line)
    return True


def _train_epoch(run: Run) -> float | None:
    """Train the rest of the epoch; return samples per second, or None if asked to stop."""
    progress = run.progress
    batches = run.train_loader.batches(
        epoch=progress.epoch, batch_size=run.plan.batch_size, first_step=progress.step_in_epoch
    )
    run.model.train()
    run.report.stopwatch.restart()
    whole = Stopwatch()
    run.console.start_bar(f"epoch {progress.epoch + 1}", done=progress.step_in_epoch, total=run.plan.steps_per_epoch)
    batches = run.report.stopwatch.waiting(batches)
    for observer in run.observers:
        batches = observer.follow(batches, done=progress.step)
    try:
        for batch in run.stall_watchdog.follow(batches):
            if handle_requests(run):
                return None
            rate = current_learning_rate(run)
            run.progress.add(_observed_step(run, batch, rate))
            whole.count()
            _after_step(run, rate)
    finally:
        run.console.stop_bar()
    return whole.samples_per_second(run.plan.batch_size)


def _observed_step(run: Run, batch: Batch, rate: float) -> StepResult:
    step = run.progress.step
    for observer in run.observers:
        observer.begin_step(step)
    result = _step(run, batch, rate)
    for observer in run.observers:
        observer.end_step(step)
    return result


def _step(run: Run, batch: Batch, rate: float) -> StepResult:
    try:
        return run.learner.step(batch, rate=rate, moment=current_moment(run))
    except GroupMemoryError:
        save_without_peers(run)
        raise


def current_moment(run: Run) -> Moment:
    """Return where the run is before its next step."""
    step = run.progress.step
    return Moment(step=step, epoch=run.progress.epoch, fraction=step / run.plan.total_steps)


def current_learning_rate(run: Run) -> float:
    """Compute the next step's learning rate."""
    return learning_rate(
        run.settings.schedule,
        peak=scale_learning_rate(run.settings.optimizer, batch_size=run.plan.batch_size),
        step=run.progress.step,
        plan=run.plan,
    )


def _after_step(run: Run, rate: float) -> None:
    run.report.stopwatch.count()
    run.console.advance_bar()
    if run.progress.step % run.settings.log_every_steps == 0:
        _log_train(run, rate)
    if run.group.is_main:
        run.report.status_file.touch(run.status)
    reserve(run)
    every = run.settings.checkpoint.every_steps
    is_last = run.progress.step_in_epoch == run.plan.steps_per_epoch
    if every and run.progress.step % every == 0 and not is_last:
        save(run)


def _log_train(run: Run, rate: float) -> None:
    run.progress.collect_pending()
    run.progress.check_skips(run.settings.optimizer.most_skips)
    loss = run.progress.window.mean(run.group, step=run.progress.step)
    skipped = _report_skips(run)
    run.progress.window.reset()
    run.progress.metrics["loss"] = loss
    if run.group.is_main:
        row = {
            "step": run.progress.step,
            "epoch": run.progress.epoch + 1,
            "loss": loss,
            "lr": rate,
            **skipped,
            **run.report.meter.read(run.report.stopwatch),
        }
        run.report.metrics_log.append(row)
        at = f"epoch {run.progress.epoch + 1}/{run.settings.epochs}  step {run.progress.step}/{run.plan.total_steps}"
        run.console.show_figures(at, render_figures(row))
    run.report.stopwatch.restart()


def _report_skips(run: Run) -> dict[str, float]:
    """Count the skipped steps since the last row; empty if there are none."""
    skipped = run.progress.window.skipped
    if not skipped:
        return {}
    run.progress.metrics["skipped_steps"] = run.progress.metrics.get("skipped_steps", 0) + skipped
    run.console.say(f"skipped {skipped} steps up to step {run.progress.step}: their gradients were not finite")
    return {"skipped": skipped}


def _finish_epoch(run: Run, metrics: dict[str, float]) -> None:
    progress = run.progress
    progress.metrics.update(metrics)
    is_best = _is_best(run, metrics)
    if is_best:
        progress.best, progress.best_epoch = metrics[f"val_{run.workload.best}"], progress.epoch + 1
    if run.group.is_main:
        run.report.metrics_log.append({"step": progress.step, "epoch": progress.epoch + 1, **metrics})
    progress.finish_epoch()
    if is_best or _is_epoch_to_save(run):
        save(run, metrics=metrics)
    if run.group.is_main:
        run.report.status_file.write("running", run.status())


def _is_epoch_to_save(run: Run) -> bool:
    every, epoch = run.settings.checkpoint.every_epochs, run.progress.epoch
    return epoch == run.settings.epochs or bool(every and epoch % every == 0)


def _is_best(run: Run, metrics: dict[str, float]) -> bool:
    value, best = metrics[f"val_{run.workload.best}"], run.progress.best
    if best is None or not math.isfinite(value):
        return math.isfinite(value)
    return value > best if run.workload.best_is == "max" else value < best
