"""What happens between two steps: hooks, validation, samples, the end of an epoch, and the save after them.

Each of them leaves its mark in the run's progress, so that a run that was stopped in between does the rest once.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trainer.base.sources import Batch
from trainer.checkpoints.store import Rating
from trainer.report.console import render_epoch
from trainer.run.run import Run, current_moment
from trainer.run.saving import Rated, save
from trainer.run.validate import validate

SAMPLE_STREAM = 2
"""Of the random numbers that samples draw."""
SECONDS_BETWEEN_EPOCH_LINES = 1.0


def attend(run: Run) -> bool:
    """Do what is due at the run's position; False if asked to stop meanwhile. Collective.

    Raises:
        BadRequestError: the metric that selects the best weights isn't measured, or a sample can't be written.
        CheckpointWriteError: a checkpoint could not be written.
        NonFiniteError: the loss or the gradient diverged.
        TrainerError: the disk refuses.
    """
    with run.stall_watchdog.paused():
        return _attend(run)


def _attend(run: Run) -> bool:
    progress, triggers = run.progress, run.spec.triggers
    ends_epoch = triggers.ends_epoch(progress)
    is_validated = triggers.is_validation_due(progress)
    is_line_due = is_validated or (ends_epoch and run.report.lap.seconds() >= SECONDS_BETWEEN_EPOCH_LINES)
    if is_line_due:
        run.report.lap.end_training()
    if ends_epoch:
        _call_epoch_hook(run)
    metrics = validate(run) if is_validated else {}
    if metrics is None:
        return False
    rated = _record_validation(run, metrics) if is_validated else None
    if triggers.is_sampling_due(progress):
        with run.report.lap.paused(), run.report.stopwatch.paused():
            _make_samples(run)
        progress.sampled_at = progress.step
    line = _render_line(run, metrics) if is_line_due else None
    if ends_epoch:
        progress.finish_epoch()
        run.stall_watchdog.end_epoch()
    _save_if_due(run, rated, is_validated=is_validated, ends_epoch=ends_epoch)
    _report(run, line, is_validated=is_validated)
    return True


def end(run: Run) -> None:
    """Call the recipe's last hook once, after the last validation; collective."""
    on_end = run.workload.hooks.on_end
    if on_end is None or run.progress.is_ended:
        return
    with run.stall_watchdog.paused():
        on_end(run.model, current_moment(run))
    run.progress.is_ended = True
    save(run)


def _call_epoch_hook(run: Run) -> None:
    on_epoch, progress = run.workload.hooks.on_epoch, run.progress
    if on_epoch is not None and progress.epochs_hooked <= progress.epoch:
        on_epoch(run.model, current_moment(run))
        progress.epochs_hooked = progress.epoch + 1


def _record_validation(run: Run, metrics: dict[str, float]) -> Rated | None:
    """Note a validation's result, and return it if these weights may be saved among the best."""
    progress, validate_settings, best = run.progress, run.settings.validate, run.spec.best
    value, epoch = best.pick(metrics), progress.epoch + 1
    progress.metrics.update(metrics)
    progress.validated_at = progress.step
    progress.record.add(best, value, epoch=epoch, least_gain=validate_settings.least_gain)
    row = {"step": progress.step, "epoch": epoch, **metrics}
    if validate_settings.patience:
        row["validations_without_gain"] = progress.record.waited
    if run.group.is_main:
        run.report.metrics_log.append(row)
    # The last weights are saved in any case: no gap spares that save.
    gap_steps = 0 if run.spec.triggers.is_over(progress) else run.spec.triggers.best_gap_steps()
    is_best = progress.record.is_to_save(best, value, step=progress.step, gap_steps=gap_steps)
    if is_best:
        progress.record.note_saved(value, epoch=epoch, step=progress.step)
    elif run.spec.triggers.best_gap_steps():
        return None
    rating = Rating(metric=best.name, value=value, best_is=best.best_is)
    return Rated(epoch=epoch, metrics=metrics, rating=rating, is_best=is_best)


def _save_if_due(run: Run, rated: Rated | None, *, is_validated: bool, ends_epoch: bool) -> None:
    progress, triggers = run.progress, run.spec.triggers
    is_best = rated is not None and rated.is_best
    is_due = is_best or triggers.is_over(progress) or triggers.is_step_save_due(progress)
    if ends_epoch and not is_due:
        is_due = triggers.is_milestone(progress) or (
            triggers.is_epoch_save_due(progress) and (is_validated or run.control.is_last_save_old())
        )
    if is_due:
        save(run, rated=rated)


def _make_samples(run: Run) -> None:
    """Let the recipe make its samples, and write them; a sharded model needs every process for that."""
    make = run.workload.samples
    if make is None:
        return
    run.learner.prepare_evaluation()
    if not run.group.is_main and run.learner.sharding is None:
        return
    moment = current_moment(run)

    def make_samples(model: nn.Module, _: Batch) -> Mapping[str, Any]:
        return make(model, moment)

    with torch.no_grad(), run.randomness.apart(SAMPLE_STREAM, step=run.progress.step):
        samples = run.learner.call_evaluated(make_samples, None)
    if run.group.is_main:
        epoch = run.spec.triggers.sampled_epoch(run.progress)
        run.report.samples.write(samples, step=run.progress.step, epoch=epoch)


def _render_line(run: Run, metrics: Mapping[str, float]) -> str:
    """Describe the steps up to here; collective if they were validated."""
    progress, lap = run.progress, run.report.lap
    if metrics:
        progress.collect_pending()
        loss: float | None = progress.whole_epoch.mean(run.group, step=progress.step)
    else:
        loss = progress.metrics.get("loss")
    at = f"epoch {progress.epoch + 1}/{run.settings.epochs}"
    if not run.spec.triggers.ends_epoch(progress):
        at += f"  step {progress.step:,}/{run.spec.triggers.total_steps:,}"
    return render_epoch(
        at=at,
        loss=loss,
        metrics=metrics,
        samples_per_second=lap.samples_per_second(run.plan.batch_size),
        seconds=lap.seconds(),
    )


def _report(run: Run, line: str | None, *, is_validated: bool) -> None:
    if is_validated and run.group.is_main:
        run.report.status_file.write("running", run.status())
    if line is not None:
        run.console.say(line)
        run.report.lap.restart()
        run.report.stopwatch.restart()
