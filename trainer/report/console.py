"""Console output: plain lines, flushed immediately, and a progress bar on a terminal."""

import sys
import time
from collections.abc import Mapping

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trainer.base.errors import visible
from trainer.step.batch import BatchPlan, render_split

SECONDS_BETWEEN_PLAIN_LINES = 30.0


class Console:
    """Prints for the main process; disabled in the other processes."""

    def __init__(self, *, enabled: bool, seconds_between_lines: float = SECONDS_BETWEEN_PLAIN_LINES) -> None:
        self._enabled = enabled
        self._seconds_between_lines = seconds_between_lines
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if enabled and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=RichConsole(soft_wrap=True, highlight=False),
                transient=True,
            )
            self._task = self._bar.add_task("", visible=False, figures="")

    def say(self, line: str) -> None:
        """Print one line now."""
        if not self._enabled:
            return
        self._last_line = time.monotonic()
        line = visible(line)
        if self._bar is not None and self._bar.live.is_started:
            self._bar.console.print(line, markup=False)
            return
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def start_bar(self, description: str, *, done: int, total: int) -> None:
        """Start a progress bar for an epoch, only on a terminal."""
        if self._bar is not None:
            self._bar.update(self._task, description=description, completed=done, total=total, visible=True)
            self._bar.start()

    def advance_bar(self) -> None:
        """Move the bar by one step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def show_figures(self, at: str, figures: str) -> None:
        """Show the latest figures: beside the bar, or without a terminal as a line every half minute.

        Args:
            at: the position in the run; only the line prints it, because the bar shows it anyway.
            figures: loss and speed.
        """
        if self._bar is not None:
            self._bar.update(self._task, figures=figures)
        elif time.monotonic() - self._last_line >= self._seconds_between_lines:
            self.say(f"{at}  {figures}")

    def stop_bar(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def render_banner(name: str, *, device: str, parameters: int, plan: BatchPlan) -> str:
    """Describe what is about to be trained."""
    is_whole = plan.total_steps == plan.epochs * plan.steps_per_epoch
    total = f"= {plan.total_steps:,} steps" if is_whole else f"up to step {plan.total_steps:,}"
    return (
        f"{name} on {plan.world_size} x {device}  {parameters:,} parameters  "
        f"{render_split(plan)}  "
        f"{plan.epochs} epochs x {plan.steps_per_epoch} steps {total}"
    )


def render_epoch(
    *, at: str, loss: float | None, metrics: Mapping[str, float], samples_per_second: float, seconds: float
) -> str:
    """Describe the steps since the last such line; `loss` is None if none was measured yet."""
    parts = [at] if loss is None else [at, f"loss {loss:.4g}"]
    parts += [render_metric(name, value) for name, value in metrics.items()]
    return "  ".join([*parts, f"{samples_per_second:,.0f} samples/s", f"{seconds:.1f} s"])


def render_figures(row: Mapping[str, float]) -> str:
    """Describe a train row: loss, learning rate, throughput, data wait, memory, MFU."""
    parts = [f"loss {row['loss']:.4g}", f"lr {row['lr']:.3g}", f"{row['samples_per_second']:,.0f} samples/s"]
    parts += [f"data wait {row['data_wait']:.0%}", f"{row['memory_gib']:.1f} GiB"]
    return "  ".join(parts + ([f"MFU {row['mfu']:.1%}"] if "mfu" in row else []))


def render_metric(name: str, value: float) -> str:
    """Format a metric with its name; accuracies as percentages."""
    return f"{name} {value:.2%}" if "accuracy" in name else f"{name} {value:.4g}"
