"""One run's checkpoint folder: each checkpoint is whole or absent; the newest that is sound counts.

    step-00001234.safetensors    the whole training state after 1,234 steps; the last few are kept
    best-00001210.safetensors    the weights that were best by the recipe's metric; the first few are kept

Where no process has the whole state, each is a folder of `shards`, named without the ending. `step-00001234.pt`,
format 1, is read as well.
"""

import math
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import read_document, read_header, write_document
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.shards import has_index, read_index, remove_folder, write_together
from trainer.checkpoints.tree import Flat, State, flatten
from trainer.errors import CheckpointWriteError, DamagedCheckpointError, first_line
from trainer.files import remove_temporaries, write_atomically

SUFFIX = ".safetensors"
_STEP_NAME = re.compile(r"step-(\d{8,})(?:\.safetensors|\.pt)?")
_BEST_NAME = re.compile(r"best-(\d{8,})(?:\.safetensors)?")


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
    """The folder, used by the main process only, or with `peers` by each of them; one thread at a time writes."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        keep_best: int = 1,
        fingerprint: Mapping[str, Any],
        peers: Peers | None = None,
    ) -> None:
        self.folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._fingerprint = flatten(dict(fingerprint)).plain
        self._peers = peers
        self._saves = 0

    def prepare(self) -> None:
        """Create the folder, and clear away what a killed process left half-written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind in ("step-*", "best-*"):
            remove_temporaries(self.folder, kind + SUFFIX)
            for part in self.folder.glob(kind):
                remove_temporaries(part, "*")

    def save(self, flat: Flat, *, step: int) -> None:
        """Write one step's state durably, then prune to the newest ones.

        Raises:
            CheckpointWriteError: it could not be written; earlier ones are untouched.
        """
        self._write(f"step-{step:08d}", flat, about={})
        self._prune(_STEP_NAME, self.list_steps()[self._keep :], before=step)

    def save_best(self, flat: Flat, *, step: int, rating: Rating) -> None:
        """Write weights durably if they are among the best, then prune to these; earlier ones win ties, NaN nothing.

        Raises:
            CheckpointWriteError: they could not be written; earlier ones are untouched.
        """
        stem = f"best-{step:08d}"
        if not self._is_wanted(stem, rating):
            return
        self._write(stem, flat, about={"rating": rating.dump(), "fingerprint": self._fingerprint})
        self._prune(_BEST_NAME, self.list_best()[self._keep_best :], before=step)

    def list_steps(self) -> list[Path]:
        """List the step checkpoints, newest first."""
        return [path for _, path in sorted(self._list(_STEP_NAME), reverse=True) if _is_whole(path)]

    def list_best(self) -> list[Path]:
        """List the best weights of this configuration, the very best first; damaged ones are left out."""
        return [path for rank, path in self._list_rated() if rank > -math.inf]

    def list_unusable_best(self) -> list[Path]:
        """List the best weights whose header is damaged, and those of another configuration."""
        return [path for rank, path in self._list_rated() if rank == -math.inf]

    def newest_name(self) -> str | None:
        """Name the newest step checkpoint, if there is one."""
        steps = self.list_steps()
        return steps[0].name if steps else None

    def set_aside(self, name: str) -> None:
        """Rename a damaged checkpoint, so that it isn't found any more; another process may have done it."""
        damaged = self.folder / f"{name}.damaged"
        if damaged.is_dir():
            shutil.rmtree(damaged, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.folder / name).replace(damaged)

    def part(self) -> None:
        """Wait for no other process much longer: this one is about to end."""
        if self._peers:
            self._peers.part()

    def _is_wanted(self, stem: str, rating: Rating) -> bool:
        """Tell whether weights are among the best, as the main process sees it."""
        if not self._peers:
            return self._is_among_best(stem, rating)
        topic = f"{self._saves}/{stem}/wanted"
        if self._peers.rank == 0:
            self._peers.tell(topic, str(int(self._is_among_best(stem, rating))))
        return self._peers.hear(topic, 0) == "1"

    def _is_among_best(self, stem: str, rating: Rating) -> bool:
        others = [rank for rank, other in self._list_rated() if other.stem != stem]
        is_better = sum(rank >= rating.rank for rank in others) < self._keep_best
        return math.isfinite(rating.value) and is_better

    def _list(self, name: re.Pattern[str]) -> list[tuple[int, Path]]:
        return [(int(match[1]), path) for path in self.folder.iterdir() if (match := name.fullmatch(path.name))]

    def _list_rated(self) -> list[tuple[float, Path]]:
        """List (rank, path) of all best weights, the highest first; of equal ones the earlier first."""
        whole = [(step, path) for step, path in self._list(_BEST_NAME) if _is_whole(path)]
        rated = [(_read_rank(path, self._fingerprint), -step, path) for step, path in whole]
        return [(rank, path) for rank, _, path in sorted(rated, reverse=True)]

    def _prune(self, name: re.Pattern[str], surplus: list[Path], *, before: int) -> None:
        """Remove what is too much, and what was never finished: nobody writes older ones any more."""
        unfinished = [path for step, path in self._list(name) if step < before and not _is_whole(path)]
        for path in (*surplus, *unfinished):
            if path.suffix:
                path.unlink(missing_ok=True)
            else:
                remove_folder(path)

    def _write(self, stem: str, flat: Flat, *, about: Mapping[str, Any]) -> None:
        self._saves += 1
        try:
            if self._peers:
                topic = f"{self._saves}/{stem}"
                write_together(self.folder / stem, flat, peers=self._peers, topic=topic, about=about)
            else:
                path = self.folder / f"{stem}{SUFFIX}"
                write_atomically(path, lambda stream: write_document(stream, flat), open_stream=open_direct)
        except OSError as err:
            raise CheckpointWriteError(
                f"{stem} could not be written",
                why=first_line(err),
                fix=f"make room in {self.folder}, or choose another folder with --checkpoint-dir",
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
        about = read_header(path).plain if path.suffix else read_index(path).about
        return Rating(**about["rating"]).rank if about["fingerprint"] == fingerprint else -math.inf
    except (OSError, ValueError, KeyError, TypeError):
        return -math.inf


def _is_whole(path: Path) -> bool:
    """Tell a checkpoint from a folder whose shards are still being written."""
    return bool(path.suffix) or has_index(path)
