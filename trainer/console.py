"""What a person sees: plain lines, flushed at once, and a progress bar where there is a terminal."""

import sys
import time
from collections.abc import Mapping

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trainer.batch import BatchPlan


class Console:
    """The main process's voice; the other processes keep quiet."""

    def __init__(self, *, speaks: bool) -> None:
        self._speaks = speaks
        self._bar: Progress | None = None
        if speaks and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=RichConsole(soft_wrap=True, highlight=False),
                transient=True,
            )
            self._task = self._bar.add_task("", visible=False)

    def say(self, line: str) -> None:
        """Print one line now."""
        if not self._speaks:
            return
        if self._bar is not None and self._bar.live.is_started:
            self._bar.console.print(line, markup=False)
            return
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def start_bar(self, description: str, *, done: int, total: int) -> None:
        """Show how far an epoch is, on a terminal only."""
        if self._bar is not None:
            self._bar.update(self._task, description=description, completed=done, total=total, visible=True)
            self._bar.start()

    def advance_bar(self) -> None:
        """Move the bar by one step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def stop_bar(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


class Stopwatch:
    """Throughput of the steps since it was last read."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was counted; time starts now."""
        self._began = time.perf_counter()
        self._steps = 0

    def count(self) -> None:
        """Count one step."""
        self._steps += 1

    def seconds(self) -> float:
        """Tell the time since the last restart, in seconds."""
        return time.perf_counter() - self._began

    def samples_per_second(self, batch_size: int) -> float:
        """Tell the throughput since the last restart, for a global batch."""
        return self._steps * batch_size / max(self.seconds(), 1e-9)


def render_banner(name: str, *, device: str, parameters: int, plan: BatchPlan) -> str:
    """Say what is about to be trained."""
    return (
        f"{name} on {plan.world_size} x {device}  {parameters:,} parameters  "
        f"batch {plan.batch_size} = {plan.world_size} x {plan.per_device}  "
        f"{plan.epochs} epochs x {plan.steps_per_epoch} steps = {plan.total_steps:,} steps"
    )


def render_epoch(
    *,
    epoch: int,
    epochs: int,
    loss: float,
    metrics: Mapping[str, float],
    samples_per_second: float,
    seconds: float,
) -> str:
    """Say how an epoch went; `epoch` counts from 1."""
    parts = [f"epoch {epoch}/{epochs}", f"loss {loss:.4g}"]
    parts += [render_metric(name, value) for name, value in metrics.items()]
    return "  ".join([*parts, f"{samples_per_second:,.0f} samples/s", f"{seconds:.1f} s"])


def render_metric(name: str, value: float) -> str:
    """Write a metric with its name; accuracies as percentages."""
    return f"{name} {value:.2%}" if "accuracy" in name else f"{name} {value:.4g}"
