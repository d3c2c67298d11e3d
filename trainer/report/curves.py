"""Draws curves.png: loss, validation metrics, learning rate, throughput and memory over training, on one page."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from trainer.base.files import write_atomically
from trainer.report.status import is_validation

Row = Mapping[str, Any]
_BLUE, _ORANGE, _GREEN, _GREY = "#1f5fa8", "#d9731a", "#2a7f4f", "#777777"
_METRICS = (_GREEN, _BLUE, _ORANGE, _GREY, "#7b4fa3", "#b3312c", "#17a0a8", "#8a6d1a")


def draw_curves(rows: Sequence[Row], path: Path, *, title: str, best_epoch: int) -> None:
    """Draw a run's metrics rows into a PNG.

    Args:
        rows: rows of metrics.jsonl, in order.
        path: the picture's file.
        title: the page's title.
        best_epoch: the epoch to mark, counted from 1; 0 for none.
    """
    train = [row for row in rows if not is_validation(row)]
    validation = [row for row in rows if is_validation(row)]
    names = _metric_names(validation)
    panels: list[Callable[[Axes], None]] = [lambda ax: _draw_loss(ax, train, validation)]
    panels += [lambda ax: _draw_metrics(ax, validation, names)] if names else []
    panels += [
        lambda ax: _draw_rate(ax, train),
        lambda ax: _draw_throughput(ax, train),
        lambda ax: _draw_memory(ax, train),
    ]
    figure = Figure(figsize=(9.0, 2.6 * len(panels)), layout="constrained")
    axes = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    best_step = next((row["step"] for row in validation if row["epoch"] == best_epoch), None)
    for draw, ax in zip(panels, axes, strict=True):
        draw(ax)
    for ax in axes:
        _finish(ax, best_step, best_epoch)
    axes[-1].set_xlabel("optimizer step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _add_epoch_axis(axes[0], validation)
    figure.suptitle(title)
    write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=130), durable=False)


def _draw_loss(ax: Axes, train: Sequence[Row], validation: Sequence[Row]) -> None:
    _line(ax, train, "loss", color=_BLUE, label="training", linewidth=1.2)
    _line(ax, validation, "val_loss", color=_ORANGE, label="validation", marker="o", markersize=4)
    ax.set_ylabel("loss")
    values = [row[name] for row in (*train, *validation) for name in ("loss", "val_loss") if row.get(name)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        ax.set_yscale("log")
        ax.set_ylabel("loss (log scale)")


def _draw_metrics(ax: Axes, validation: Sequence[Row], names: Sequence[str]) -> None:
    for name, color in zip(names, _METRICS * len(names), strict=False):
        label = name.removeprefix("val_").replace("_", " ")
        _line(ax, validation, name, color=color, label=f"validation {label}", marker="o", markersize=4)
    if all("accuracy" in name for name in names):
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        ax.set_ylabel("accuracy")
    else:
        ax.set_ylabel("validation metrics")


def _draw_rate(ax: Axes, train: Sequence[Row]) -> None:
    _line(ax, train, "lr", color=_GREY, label="learning rate", linewidth=1.5)
    ax.set_ylabel("learning rate")
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    ax.set_ylim(bottom=0)


def _draw_throughput(ax: Axes, train: Sequence[Row]) -> None:
    _line(ax, train, "samples_per_second", color=_BLUE, label="throughput", linewidth=1.2)
    ax.set_ylabel("samples / s")
    ax.set_ylim(bottom=0)


def _draw_memory(ax: Axes, train: Sequence[Row]) -> None:
    _line(ax, train, "memory_gib", color=_GREEN, label="peak memory", linewidth=1.5)
    ax.set_ylabel("GiB")
    ax.set_ylim(bottom=0)


def _line(ax: Axes, rows: Sequence[Row], name: str, **style: Any) -> None:
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if len(points) == 1:
        # A line through one point is invisible.
        style = {"marker": "o", "markersize": 4, **style}
    ax.plot([step for step, _ in points], [value for _, value in points], **style)


def _finish(ax: Axes, best_step: int | None, best_epoch: int) -> None:
    if best_step is not None:
        ax.axvline(best_step, color=_GREY, linestyle=":", linewidth=1.2, label=f"best: epoch {best_epoch}")
    ax.grid(visible=True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="best", fontsize=9, framealpha=0.9)


def _add_epoch_axis(ax: Axes, validation: Sequence[Row]) -> None:
    """Label the top edge with epochs, at most about ten of them."""
    if not validation:
        return
    every = -(-len(validation) // 10)
    shown = [row for row in validation if row["epoch"] % every == 0] or list(validation)
    top = ax.secondary_xaxis("top")
    top.set_xticks([row["step"] for row in shown], [str(row["epoch"]) for row in shown])
    top.set_xlabel("epoch")


def _metric_names(validation: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(name for row in validation for name in row if name.startswith("val_"))
    return [name for name in names if name != "val_loss"]
