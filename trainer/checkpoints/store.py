"""One run's checkpoint folder: each checkpoint is whole or absent; the newest that is sound counts.

    step-00001234.safetensors    the whole training state after 1,234 steps; the last few are kept
    best-00001210.safetensors    the weights that were best by the recipe's metric; the first few are kept

Where no process has the whole state, each is a folder of `shards`, named without the ending. `step-00001234.pt`,
format 1, is read as well.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import read_document, write_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.shards import INDEX, has_index, read_index, remove_folder, write_together
from trainer.checkpoints.tree import Flat, State, flatten
from trainer.errors import CheckpointWriteError, DamagedCheckpointError, first_line
from trainer.files import remove_temporaries, write_atomically

SUFFIX = ".safetensors"
_STEP_NAME = re.compile(r"step-(\d{8,})(?:\.safetensors|\.pt)?")
_BEST_NAME = re.compile(r"best-(\d{8,})(?:\.safetensors)?")
Rated = dict[str, tuple[float, int]]
"""Names of best weights, with what they are sorted by: the metric's rank, and of equal ones the earlier step."""


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
        defaults: Mapping[str, Any] = MappingProxyType({}),
        peers: Peers | None = None,
    ) -> None:
        """Look at a folder.

        Args:
            folder: where the checkpoints are.
            keep: how many steps are kept.
            keep_best: how many of the best weights are kept.
            fingerprint: what checkpoints of this run have in common.
            defaults: what stands in older ones for parts of the fingerprint that they don't have.
            peers: those who write each checkpoint together.
        """
        self.folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._fingerprint = flatten(dict(fingerprint)).plain
        self._defaults = flatten(dict(defaults)).plain
        self._peers = peers
        self._saves = 0

    def prepare(self) -> None:
        """Create the folder, and clear away what a killed process left half-written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind in ("step-*", "best-*"):
            remove_temporaries(self.folder, kind + SUFFIX)
            for part in self.folder.glob(kind):
                remove_temporaries(part, f"*{SUFFIX}")
                remove_temporaries(part, INDEX)

    def save(self, flat: Flat, *, step: int) -> None:
        """Write one step's state durably, then prune to the newest ones.

        Raises:
            CheckpointWriteError: it could not be written; those that are there are untouched.
        """
        path = self._write(f"step-{step:08d}", flat, about={})
        self._remove_twins(path)
        self._prune(_STEP_NAME, self.list_steps()[self._keep :], before=step)

    def save_best(self, flat: Flat, *, step: int, rating: Rating) -> None:
        """Write weights durably if they are among the best, then prune to these; earlier ones win ties, NaN nothing.

        Raises:
            CheckpointWriteError: they could not be written; those that are there are untouched.
        """
        stem = f"best-{step:08d}"
        with self._explaining(stem):
            rated = self._rate_everywhere(stem)
        others = {name: order for name, order in rated.items() if Path(name).stem != stem}
        is_better = sum(rank >= rating.rank for rank, _ in others.values()) < self._keep_best
        if not math.isfinite(rating.value) or not is_better:
            return
        path = self._write(stem, flat, about={"rating": rating.dump(), "fingerprint": self._fingerprint})
        kept = sort_rated({**others, path.name: (rating.rank, -step)})[: self._keep_best]
        self._prune(_BEST_NAME, [self.folder / name for name in self.rate_best() if name not in kept], before=step)

    def list_steps(self) -> list[Path]:
        """List the step checkpoints, newest first."""
        return [path for _, path in sorted(self._list(_STEP_NAME), reverse=True) if _is_whole(path)]

    def list_best(self) -> list[Path]:
        """List the best weights of this configuration, the very best first; damaged ones are left out."""
        return [self.folder / name for name in sort_rated(self.rate_best())]

    def rate_best(self) -> Rated:
        """Tell how good the best weights of this configuration are, as their headers say."""
        rated = {path.name: (self._read_rank(path), -step) for step, path in self._list_best()}
        return {name: order for name, order in rated.items() if order[0] > -math.inf}

    def list_unusable_best(self) -> list[str]:
        """Name the best weights whose header is damaged, and those of another configuration."""
        return [path.name for _, path in self._list_best() if self._read_rank(path) == -math.inf]

    def newest_name(self) -> str | None:
        """Name the newest step checkpoint, if there is one."""
        steps = self.list_steps()
        return steps[0].name if steps else None

    def set_aside(self, name: str) -> None:
        """Rename a checkpoint that doesn't load, so that it isn't found any more; another process may have done it."""
        free = f"{name}.damaged"
        for number in count(2):
            if not (self.folder / free).exists():
                break
            free = f"{name}.damaged-{number}"
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / free)

    def leave_soon(self) -> None:
        """Wait for no other process much longer: this one is about to end."""
        if self._peers:
            self._peers.leave_soon()

    def fail(self, why: str) -> None:
        """Tell the others that they wait in vain: this process writes nothing any more."""
        if self._peers:
            self._peers.fail(why)

    def _rate_everywhere(self, stem: str) -> Rated:
        """Tell how good the best weights are that any of those who write has."""
        mine = self.rate_best()
        if not self._peers:
            return mine
        topic = f"{self._saves}/{stem}/rated"
        self._peers.tell(topic, json.dumps(mine))
        told = [json.loads(text) for text in self._peers.hear_all(topic)]
        return {name: (rank, order) for each in told for name, (rank, order) in each.items()}

    def _list(self, name: re.Pattern[str]) -> list[tuple[int, Path]]:
        if not self.folder.is_dir():
            return []
        return [(int(match[1]), path) for path in self.folder.iterdir() if (match := name.fullmatch(path.name))]

    def _read_rank(self, path: Path) -> float:
        """Read how good some weights are: -inf where they are damaged or of another configuration."""
        try:
            about = read_index(path).about if path.is_dir() else read_header(path).plain
            if find_differences({**self._defaults, **about["fingerprint"]}, self._fingerprint):
                return -math.inf
            return float(Rating(**about["rating"]).rank)
        except (OSError, ValueError, KeyError, TypeError):
            return -math.inf

    def _list_best(self) -> list[tuple[int, Path]]:
        return [(step, path) for step, path in self._list(_BEST_NAME) if _is_whole(path)]

    def _remove_twins(self, path: Path) -> None:
        """Remove the same step as it was saved in another form."""
        for step in self.list_steps():
            if step.stem == path.stem and step != path:
                _remove(step)

    def _prune(self, name: re.Pattern[str], surplus: list[Path], *, before: int) -> None:
        """Remove what is too much, and what was never finished: nobody writes older ones any more."""
        unfinished = [path for step, path in self._list(name) if step < before and not _is_whole(path)]
        for path in (*surplus, *unfinished):
            _remove(path)

    def _write(self, stem: str, flat: Flat, *, about: Mapping[str, Any]) -> Path:
        self._saves += 1
        path = self.folder / (stem if self._peers else f"{stem}{SUFFIX}")
        with self._explaining(path.name):
            if self._peers:
                write_together(path, flat, peers=self._peers, topic=f"{self._saves}/{stem}", about=about)
            else:
                write_atomically(path, lambda stream: write_document(stream, flat), open_stream=open_direct)
        return path

    @contextmanager
    def _explaining(self, name: str) -> Iterator[None]:
        """Say what it means where a checkpoint meets an OSError, to the other processes as well."""
        try:
            yield
        except OSError as err:
            self.fail(first_line(err))
            raise CheckpointWriteError(
                f"{name} could not be written",
                why=first_line(err),
                fix=f"make room in {self.folder}, or choose another folder with --checkpoint-dir",
            ) from err


def find_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Name what is another in an older fingerprint; what it has beside ours doesn't count."""
    return [key for key in ours if theirs.get(key) != ours[key]]


def sort_rated(rated: Rated) -> list[str]:
    """Name the best weights, the very best first; of equal ones the earlier first."""
    return sorted(rated, key=lambda name: rated[name], reverse=True)


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


def _is_whole(path: Path) -> bool:
    """Tell a checkpoint from a folder whose shards are still being written."""
    return has_index(path) if path.is_dir() else True


def _remove(path: Path) -> None:
    if path.is_dir():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)
