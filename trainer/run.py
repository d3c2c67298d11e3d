"""One run with all of its parts, and what can be done to it at any point: checkpoint it, stop it."""

import time
from dataclasses import dataclass, field

import torch
from torch import nn

from trainer.batch import BatchPlan
from trainer.checkpoint import CheckpointStore
from trainer.config import Settings
from trainer.console import Console, Stopwatch, render_metric
from trainer.control import Control
from trainer.distributed import World
from trainer.progress import Progress, dump_progress
from trainer.recipe import Workload
from trainer.rng import capture_rng
from trainer.status import MetricsLog, Status, StatusFile


@dataclass(slots=True, kw_only=True)
class Run:
    """All parts of one run. `model` is bare; `wrapped` averages gradients over processes."""

    settings: Settings
    workload: Workload
    world: World
    plan: BatchPlan
    fingerprint: dict[str, object]
    model: nn.Module
    wrapped: nn.Module
    optimizer: torch.optim.Optimizer
    progress: Progress
    store: CheckpointStore
    status_file: StatusFile
    metrics_log: MetricsLog
    control: Control
    console: Console
    saved_position: tuple[int, int] = (0, 0)
    stop_reason: str | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

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


def save(run: Run) -> bool:
    """Checkpoint the run as it is; collective. Returns False where this very point was saved before."""
    if run.progress.position == run.saved_position:
        return False
    began = time.perf_counter()
    progress = dump_progress(run.progress, run.world)
    rng = run.world.gather(capture_rng(run.world.device))
    if run.world.is_main:
        run.metrics_log.sync()
        state = {
            "fingerprint": run.fingerprint,
            "progress": progress,
            "rng": rng,
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
        }
        run.store.save(state, step=run.progress.step)
        run.status_file.touch(run.status)
    run.saved_position = run.progress.position
    run.control.note_save(time.perf_counter() - began)
    return True


def save_best(run: Run) -> None:
    """Keep the current weights as the best ones."""
    state = {
        "fingerprint": run.fingerprint,
        "epoch": run.progress.epoch + 1,
        "step": run.progress.step,
        "metrics": dict(run.progress.metrics),
        "model": run.model.state_dict(),
    }
    run.store.save_best(state)


def must_stop(run: Run) -> bool:
    """Do what is asked from outside: checkpoint, and return True where the run has to end. Collective."""
    decision = run.control.poll()
    if decision.stop:
        run.stop_reason = decision.stop
    is_new = (decision.stop is not None or decision.save) and save(run)
    if is_new and not decision.stop:
        run.console.say(f"checkpoint at step {run.progress.step}; going on")
    return decision.stop is not None


def describe_best(run: Run) -> str:
    """Say which epoch was best, and by what."""
    if run.progress.best is None:
        return "not validated"
    best = render_metric(f"val_{run.workload.best}", run.progress.best)
    return f"best {best} (epoch {run.progress.best_epoch})"
