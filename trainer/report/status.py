"""The files that others read during a run: status.json (the current status) and metrics.jsonl (the history)."""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from trainer.base.errors import TrainerError, first_line
from trainer.base.files import remove_temporaries, write_atomically
from trainer.report.trackers import Tracker

State = Literal["running", "stopped", "succeeded", "failed"]
SECONDS_BETWEEN_UPDATES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run's position. `epoch` counts from 1 and is the one in progress; steps are optimizer steps.

    `ended_early` is why the run ended before its last step.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    metrics: Mapping[str, float]
    checkpoint: str | None
    ended_early: str | None = None


class StatusFile:
    """status.json, replaced atomically: a reader never sees half of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next_update = 0.0
        self._warning: str | None = None
        self._writing = threading.Lock()

    def prepare(self) -> None:
        """Create the folder, and remove the temporary files of a killed process."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.path.parent, self.path.name)

    def read(self) -> dict[str, Any]:
        """Read an earlier process's status; empty if the file is missing or unreadable."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def write(self, state: State, status: Status, *, error: str | None = None) -> None:
        """Write the status now; `error` is one line, for a failed run. Any thread may call this.

        Raises:
            TrainerError: the disk refuses.
        """
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
        if status.ended_early is not None:
            content["ended_early"] = status.ended_early
        if error is not None:
            content["error"] = error
        if self._warning is not None and state == "running":
            content["warning"] = self._warning
        text = json.dumps(content, allow_nan=False, indent=1) + "\n"
        with self._writing, _explained(self.path):
            write_atomically(self.path, lambda stream: stream.write(text.encode()), durable=state != "running")
        self._next_update = time.monotonic() + SECONDS_BETWEEN_UPDATES

    def warn(self, warning: str | None, status: Status) -> None:
        """Write "running" with a warning, which stays until the next call; None clears it."""
        self._warning = warning
        self.write("running", status)

    def touch(self, status: Callable[[], Status]) -> None:
        """Write "running" if the last update is at least a second old; `status` is called only then."""
        if time.monotonic() >= self._next_update:
            self.write("running", status())


class MetricsLog:
    """metrics.jsonl, one JSON object a line. Train rows have `loss`, validation rows names that begin with `val_`.

    Attached trackers get the same rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None
        self._trackers: Sequence[Tracker] = ()

    def attach_trackers(self, trackers: Sequence[Tracker]) -> None:
        """Send each new row to these trackers as well."""
        self._trackers = trackers

    def close(self) -> None:
        """Close the file and the trackers."""
        stream, self._stream = self._stream, None
        try:
            if stream:
                stream.close()
        finally:
            for tracker in self._trackers:
                tracker.close()
            self._trackers = ()

    def rows_before(self, *, step: int, validated_at: int) -> list[dict[str, Any]]:
        """Read the rows that a run resumed at this point doesn't write again.

        Args:
            step: the resumed state's number of steps.
            validated_at: the step of its last validation.
        """
        return [row for row in read_metrics(self.path) if _is_before(row, step, validated_at)]

    def replace(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Make these the file's rows.

        Raises:
            TrainerError: the disk refuses.
        """
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        with _explained(self.path):
            remove_temporaries(self.path.parent, self.path.name)
            write_atomically(self.path, lambda stream: stream.write(text.encode()))

    def append(self, row: Mapping[str, float]) -> None:
        """Add one row; a non-finite value becomes null, because JSON has no NaN.

        Raises:
            TrainerError: the disk refuses.
        """
        clean = {name: finite_or_none(value) for name, value in row.items()}
        with _explained(self.path):
            if self._stream is None:
                self._stream = self.path.open("ab", buffering=0)  # each row is written immediately
            self._stream.write((json.dumps(clean, allow_nan=False) + "\n").encode())
        for tracker in self._trackers:
            tracker.log(row)

    def sync(self) -> None:
        """Make the rows durable, before a checkpoint that relies on them."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a metrics.jsonl, up to the first line that a kill has truncated."""
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


def is_validation(row: Mapping[str, Any]) -> bool:
    """Return whether a row of metrics.jsonl has the results of a validation."""
    return any(name.startswith("val_") for name in row)


def _is_before(row: Mapping[str, Any], step: int, validated_at: int) -> bool:
    return int(row["step"]) <= (validated_at if is_validation(row) else step)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an OSError into an error that says what to do."""
    try:
        yield
    except OSError as err:
        raise TrainerError(
            f"{path.name} could not be written",
            why=first_line(err),
            fix=f"make room in {path.parent}, or choose another folder with --output-dir; the same command resumes",
        ) from err
