"""What others read while a run goes on: status.json (now) and metrics.jsonl (everything so far)."""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from trainer.files import remove_temporaries, write_atomically
from trainer.trackers import Tracker

State = Literal["running", "stopped", "succeeded", "failed"]
SECONDS_BETWEEN_UPDATES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a run is. `epoch` counts from 1 and is the one in progress; steps are optimizer steps."""

    epoch: int
    epochs: int
    step: int
    steps: int
    metrics: Mapping[str, float]
    checkpoint: str | None


class StatusFile:
    """status.json, replaced whole: a reader never sees half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_update = 0.0
        self._warning: str | None = None
        self._writing = threading.Lock()

    def prepare(self) -> None:
        """Create the folder, and clear away what a killed process left half-written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self._path.parent, self._path.name)

    def read(self) -> dict[str, Any]:
        """Read what an earlier process left; empty where it is missing or unreadable."""
        try:
            content = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def write(self, state: State, status: Status, *, error: str | None = None) -> None:
        """Write the status now; `error` is one line, for a failed run. From any thread."""
        content = {
            "state": state,
            "epoch": status.epoch,
            "epochs": status.epochs,
            "step": status.step,
            "steps": status.steps,
            "metrics": {name: finite_or_none(value) for name, value in status.metrics.items()},
            "checkpoint": status.checkpoint,
            "updated": time.time(),
        }
        if error is not None:
            content["error"] = error
        if self._warning is not None and state == "running":
            content["warning"] = self._warning
        text = json.dumps(content, allow_nan=False, indent=1) + "\n"
        with self._writing:
            write_atomically(self._path, lambda stream: stream.write(text.encode()), durable=state != "running")
        self._next_update = time.monotonic() + SECONDS_BETWEEN_UPDATES

    def warn(self, warning: str | None, status: Status) -> None:
        """Write "running" with a warning, which stays until it is taken back with None."""
        self._warning = warning
        self.write("running", status)

    def touch(self, status: Callable[[], Status]) -> None:
        """Write "running" if the last update is a second old; the status is only made when needed."""
        if time.monotonic() >= self._next_update:
            self.write("running", status())


class MetricsLog:
    """metrics.jsonl, one JSON object a line. Train rows have `loss`, validation rows `val_loss`.

    Trackers that follow it get the same rows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: TextIO | None = None
        self._trackers: Sequence[Tracker] = ()

    def follow_with(self, trackers: Sequence[Tracker]) -> None:
        """Hand each row that comes to these as well."""
        self._trackers = trackers

    def close(self) -> None:
        """Close the file, and let the trackers finish."""
        stream, self._stream = self._stream, None
        try:
            if stream:
                stream.close()
        finally:
            for tracker in self._trackers:
                tracker.close()
            self._trackers = ()

    def rewind(self, *, step: int, epochs_validated: int) -> None:
        """Drop the rows that a run resumed at this point will write again.

        Args:
            step: steps that the resumed state has done.
            epochs_validated: whole epochs that it has validated.
        """
        rows = [row for row in read_metrics(self._path) if _is_before(row, step, epochs_validated)]
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        remove_temporaries(self._path.parent, self._path.name)
        write_atomically(self._path, lambda stream: stream.write(text.encode()))

    def append(self, row: Mapping[str, float]) -> None:
        """Add one row; what isn't finite becomes null, because NaN is no JSON."""
        clean = {name: finite_or_none(value) for name, value in row.items()}
        if self._stream is None:
            self._stream = self._path.open("a", encoding="utf-8", buffering=1)  # each row is in the file at once
        self._stream.write(json.dumps(clean, allow_nan=False) + "\n")
        for tracker in self._trackers:
            tracker.log(row)

    def sync(self) -> None:
        """Make the rows durable: called before a checkpoint that counts on them."""
        with self._path.open("rb") as stream:
            os.fsync(stream.fileno())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a metrics.jsonl; a line cut short by a kill, and all after it, are left out."""
    rows: list[dict[str, Any]] = []
    if not path.exists():
        return rows
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def finite_or_none(value: float) -> float | None:
    """Round to 6 significant digits; None for NaN and infinity."""
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _is_before(row: Mapping[str, Any], step: int, epochs_validated: int) -> bool:
    if "val_loss" in row:
        return int(row["epoch"]) <= epochs_validated
    return int(row["step"]) <= step
