"""The training loop: step, validate, checkpoint, stop where asked. Owned, so that nothing is hidden."""

import math
import time

from torch.nn.utils import clip_grad_norm_

from trainer.console import Stopwatch, render_epoch
from trainer.data import Batch, KeyedSampler, load_batches
from trainer.run import Run, must_stop, save, save_best
from trainer.schedule import learning_rate
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
    )
    run.wrapped.train()
    run.stopwatch.restart()
    whole = Stopwatch()
    run.console.start_bar(f"epoch {progress.epoch + 1}", done=progress.step_in_epoch, total=run.plan.steps_per_epoch)
    try:
        for batch in batches:
            if must_stop(run):
                return None
            _train_step(run, batch)
            whole.count()
            _after_step(run)
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


def _train_step(run: Run, batch: Batch) -> None:
    rate = current_learning_rate(run)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    loss = run.workload.loss(run.wrapped, batch)
    run.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    clip_norm = run.settings.optimizer.clip_norm
    grad_norm = clip_grad_norm_(run.model.parameters(), clip_norm) if clip_norm else None
    run.optimizer.step()
    run.progress.window.add(loss.detach(), grad_norm)
    run.progress.whole_epoch.add(loss.detach(), grad_norm)


def current_learning_rate(run: Run) -> float:
    """Compute the rate of the step that comes next."""
    return learning_rate(
        run.settings.schedule,
        peak=run.settings.optimizer.learning_rate,
        step=run.progress.step,
        total_steps=run.plan.total_steps,
    )


def _after_step(run: Run) -> None:
    rate = current_learning_rate(run)
    run.progress.step += 1
    run.progress.step_in_epoch += 1
    run.stopwatch.count()
    run.console.advance_bar()
    if run.progress.step % run.settings.log_every_steps == 0:
        _log_train(run, rate)
    if run.world.is_main:
        run.status_file.touch(run.status)
    every = run.settings.checkpoint.every_steps
    is_last = run.progress.step_in_epoch == run.plan.steps_per_epoch
    if every and run.progress.step % every == 0 and not is_last:
        save(run)


def _log_train(run: Run, rate: float) -> None:
    loss = run.progress.window.mean(run.world, step=run.progress.step)
    run.progress.window.reset()
    run.progress.metrics["loss"] = loss
    if run.world.is_main:
        row = {
            "step": run.progress.step,
            "epoch": run.progress.epoch + 1,
            "loss": loss,
            "lr": rate,
            "samples_per_second": run.stopwatch.samples_per_second(run.plan.batch_size),
        }
        run.metrics_log.append(row)
    run.stopwatch.restart()


def _finish_epoch(run: Run, metrics: dict[str, float]) -> None:
    progress = run.progress
    progress.metrics.update(metrics)
    is_best = _is_best(run, metrics)
    if is_best:
        progress.best, progress.best_epoch = metrics[f"val_{run.workload.best}"], progress.epoch + 1
    if run.world.is_main:
        run.metrics_log.append({"step": progress.step, "epoch": progress.epoch + 1, **metrics})
        if is_best:  # before the step checkpoint, which says that this best exists
            save_best(run)
    progress.finish_epoch()
    save(run)
    if run.world.is_main:
        run.status_file.write("running", run.status())


def _is_best(run: Run, metrics: dict[str, float]) -> bool:
    value, best = metrics[f"val_{run.workload.best}"], run.progress.best
    if best is None or not math.isfinite(value):
        return math.isfinite(value)
    return value > best if run.workload.best_is == "max" else value < best
