"""One run's checkpoint folder: each checkpoint one file, whole or absent; the newest that is sound counts.

    step-00001234.safetensors    the whole training state after 1,234 steps; the last few are kept
    best-00001210.safetensors    the weights that were best by the recipe's metric; the first few are kept

`step-00001234.pt`, format 1, is read as well.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import read_document, read_plain, write_document
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.tree import Flat, State, flatten
from trainer.errors import CheckpointWriteError, DamagedCheckpointError, first_line
from trainer.files import remove_temporaries, write_atomically

SUFFIX = ".safetensors"
_STEP_NAME = re.compile(r"step-(\d{8,})\.(?:safetensors|pt)")
_BEST_NAME = re.compile(r"best-(\d{8,})\.safetensors")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What a validation said of some weights, by the metric that chooses the best ones."""

    metric: str
    value: float
    best_is: Literal["min", "max"]

    @property
    def rank(self) -> float:
        """The value, turned so that more is better."""
        return self.value if self.best_is == "max" else -self.value

    def dump(self) -> dict[str, Any]:
        """Turn it into plain data."""
        return {"metric": self.metric, "value": self.value, "best_is": self.best_is}


class CheckpointStore:
    """The folder. Only the main process uses it, and at a time only one of its threads writes."""

    def __init__(self, folder: Path, *, keep: int, keep_best: int = 1, fingerprint: Mapping[str, Any]) -> None:
        self._folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._fingerprint = flatten(dict(fingerprint)).plain

    def prepare(self) -> None:
        """Create the folder, and clear away what a killed process left half-written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self._folder, f"step-*{SUFFIX}")
        remove_temporaries(self._folder, f"best-*{SUFFIX}")

    def save(self, flat: Flat, *, step: int) -> None:
        """Write one step's state durably, then prune to the newest ones.

        Raises:
            CheckpointWriteError: it could not be written; earlier ones are untouched.
        """
        self._write(self._folder / f"step-{step:08d}{SUFFIX}", flat)
        for old in self.list_steps()[self._keep :]:
            old.unlink(missing_ok=True)

    def save_best(self, flat: Flat, *, step: int, rating: Rating) -> None:
        """Write weights durably if they are among the best, then prune to these; earlier ones win ties, NaN nothing.

        Raises:
            CheckpointWriteError: they could not be written; earlier ones are untouched.
        """
        path = self._folder / f"best-{step:08d}{SUFFIX}"
        others = [rank for rank, other in self._list_rated() if other != path]
        if not math.isfinite(rating.value) or sum(rank >= rating.rank for rank in others) >= self._keep_best:
            return
        self._write(path, flat)
        for old in self.list_best()[self._keep_best :]:
            old.unlink(missing_ok=True)

    def list_steps(self) -> list[Path]:
        """List the step checkpoints, newest first."""
        return [path for _, path in sorted(self._list(_STEP_NAME), reverse=True)]

    def list_best(self) -> list[Path]:
        """List the best weights of this configuration, the very best first; damaged ones are left out."""
        return [path for rank, path in self._list_rated() if rank > -math.inf]

    def newest_name(self) -> str | None:
        """Name the newest step checkpoint, if there is one."""
        steps = self.list_steps()
        return steps[0].name if steps else None

    def load_newest(self, say: Say) -> State | None:
        """Load the newest checkpoint that is sound; a damaged one is set aside as NAME.damaged, and said."""
        for path in self.list_steps():
            try:
                return load_checkpoint(path)
            except DamagedCheckpointError as err:
                path.replace(path.with_name(f"{path.name}.damaged"))
                say(f"{err.what} ({err.why}): set aside, going back to the one before it")
        return None

    def load_best(self, say: Say) -> State | None:
        """Load the best weights of this configuration that are sound; None where there are none, and said why."""
        for rank, path in self._list_rated():
            try:
                state = load_checkpoint(path)
            except DamagedCheckpointError as err:
                say(f"{err.what} ({err.why})")
                continue
            if rank > -math.inf:
                return state
        return None

    def _list(self, name: re.Pattern[str]) -> list[tuple[int, Path]]:
        return [(int(match[1]), path) for path in self._folder.iterdir() if (match := name.fullmatch(path.name))]

    def _list_rated(self) -> list[tuple[float, Path]]:
        """List (rank, path) of all best weights, the highest first; of equal ones the earlier first."""
        rated = [(_read_rank(path, self._fingerprint), -step, path) for step, path in self._list(_BEST_NAME)]
        return [(rank, path) for rank, _, path in sorted(rated, reverse=True)]

    def _write(self, path: Path, flat: Flat) -> None:
        try:
            write_atomically(path, lambda stream: write_document(stream, flat), open_stream=open_direct)
        except OSError as err:
            raise CheckpointWriteError(
                f"{path.name} could not be written",
                why=first_line(err),
                fix=f"make room in {path.parent}, or choose another folder with --checkpoint-dir",
            ) from err


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint file onto the CPU, checksums verified, no code executed.

    Raises:
        DamagedCheckpointError: missing, cut short, altered, or not one of ours.
    """
    try:
        state = read_document(path) if path.suffix == SUFFIX else _read_format_1(path)
    except (OSError, ValueError) as err:
        raise DamagedCheckpointError(
            f"{path.name} does not load", why=first_line(err), fix="an earlier checkpoint is used instead"
        ) from err
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{path.name} does not load", why="it holds no state", fix="remove it")
    return state


def _read_format_1(path: Path) -> Any:
    state = read_pickled(path)
    if not isinstance(state, dict) or state.get("format") != 1:
        raise ValueError("not a checkpoint of format 1")
    return state


def _read_rank(path: Path, fingerprint: Any) -> float:
    """Read how good some weights are: -inf where they are damaged or of another configuration."""
    try:
        plain = read_plain(path)
        return Rating(**plain["rating"]).rank if plain["fingerprint"] == fingerprint else -math.inf
    except (OSError, ValueError, KeyError, TypeError):
        return -math.inf
