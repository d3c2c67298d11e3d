"""The training loop: a step at a time, what is due between two steps, and a stop on request."""

from trainer.base.errors import GroupMemoryError
from trainer.base.sources import Batch
from trainer.report.console import render_figures
from trainer.run.between_steps import attend, end
from trainer.run.run import Run, current_moment
from trainer.run.saving import handle_requests, reserve, save, save_without_peers
from trainer.step.learner import StepResult


def train(run: Run) -> bool:
    """Train to the last step, or until asked to stop; save a checkpoint in both cases.

    Returns:
        True if the run is complete, False if it was stopped; `run.stop_reason` says by what.

    Raises:
        NonFiniteError: the loss or the gradient diverged; no checkpoint has non-finite values.
        CheckpointWriteError: a checkpoint could not be written.
    """
    run.report.lap.restart()
    run.report.stopwatch.restart()
    try:
        while attend(run):
            if run.spec.triggers.is_over(run.progress):
                end(run)
                return True
            if not _train_epoch(run):
                return False
        return False
    finally:
        run.console.stop_bar()


def _train_epoch(run: Run) -> bool:
    """Train the rest of the epoch, or of the run if that is shorter; False if asked to stop."""
    progress, triggers, stopwatch = run.progress, run.spec.triggers, run.report.stopwatch
    batches = stopwatch.waiting(
        run.train_loader.batches(
            epoch=progress.epoch, batch_size=run.plan.batch_size, first_step=progress.step_in_epoch
        )
    )
    for observer in run.observers:
        batches = observer.follow(batches, done=progress.step)
    run.model.train()
    run.console.start_bar(f"epoch {progress.epoch + 1}", done=progress.step_in_epoch, total=run.plan.steps_per_epoch)
    # Requests are handled before a batch is taken: a stream's position counts it from then on.
    if handle_requests(run):
        return False
    for batch in run.stall_watchdog.follow(batches):
        _make_step(run, batch)
        if triggers.ends_epoch(progress):
            continue  # to the end of the batches: what is due comes after them
        if not _attend_within_epoch(run):
            return False
        if triggers.is_over(progress):
            break
        if handle_requests(run):
            return False
    return True


def _make_step(run: Run, batch: Batch) -> None:
    rate = run.spec.rate_of(run.progress.step)
    run.progress.add(_observed_step(run, batch, rate))
    _after_step(run, rate)


def _attend_within_epoch(run: Run) -> bool:
    """Validate or make samples if that is due within an epoch; False if asked to stop meanwhile."""
    triggers = run.spec.triggers
    if not triggers.is_validation_due(run.progress) and not triggers.is_sampling_due(run.progress):
        return True
    goes_on = attend(run)
    run.model.train()
    return goes_on


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


def _after_step(run: Run, rate: float) -> None:
    on_step = run.workload.hooks.on_step
    if on_step is not None:
        on_step(run.model, current_moment(run))
    run.report.stopwatch.count()
    run.report.lap.count()
    run.console.advance_bar()
    if run.progress.step % run.settings.log_every_steps == 0:
        _log_train(run, rate)
    if run.group.is_main:
        run.report.status_file.touch(run.status)
    reserve(run)
    triggers = run.spec.triggers
    # With a validation due, the save comes after it.
    if triggers.is_step_save_due(run.progress) and not triggers.is_validation_due(run.progress):
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
        steps = run.spec.triggers.total_steps
        at = f"epoch {run.progress.epoch + 1}/{run.settings.epochs}  step {run.progress.step}/{steps}"
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
