"""One run's checkpoint folder: atomic saves, pruning, and the best weights by a metric.

    step-00001234.safetensors    the whole training state after 1,234 steps; the newest few and milestones are kept
    best-00001210.safetensors    the weights that were best by the recipe's metric; the best few are kept

A sharded checkpoint is a folder (see `shards`), named without the suffix. `step-00001234.pt`, format 1, can be read as
well.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from trainer.base.errors import CheckpointWriteError, DamagedCheckpointError, first_line
from trainer.base.files import remove_temporaries, write_atomically
from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import read_document, write_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.pickled import read_pickled
from trainer.checkpoints.shards import (
    INDEX,
    MILESTONE,
    is_milestone,
    is_whole,
    read_index,
    remove_checkpoint,
    write_sharded,
)
from trainer.checkpoints.tree import Flat, State, flatten

SUFFIX = ".safetensors"
_STEP_NAME = re.compile(r"step-(\d{8,})(?:\.safetensors|\.pt)?")
_BEST_NAME = re.compile(r"best-(\d{8,})(?:\.safetensors)?")
Rated = dict[str, tuple[str, float, int]]
"""Names of best weights with their metric and their sort key: the metric's rank, then the earlier step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A validation's result for some weights, by the metric that selects the best ones."""

    metric: str
    value: float
    best_is: Literal["min", "max"]

    @property
    def rank(self) -> float:
        """The value, negated if necessary so that more is better."""
        return self.value if self.best_is == "max" else -self.value

    @property
    def scale(self) -> str:
        """What two ratings must have in common to be compared."""
        return f"{self.best_is} {self.metric}"

    def dump(self) -> dict[str, Any]:
        """Turn it into plain data."""
        return {"metric": self.metric, "value": self.value, "best_is": self.best_is}


class CheckpointStore:
    """The folder. Only the main process uses it; with `peers`, every process does. One thread at a time writes."""

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
        """Describe a folder; nothing is read or written yet.

        Args:
            folder: where the checkpoints are.
            keep: how many steps are kept.
            keep_best: how many of the best weights are kept.
            fingerprint: the settings that all checkpoints of this run have in common.
            defaults: the values of settings that older checkpoints don't have in their fingerprint.
            peers: the processes that write each checkpoint together.
        """
        self.folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._fingerprint = flatten(dict(fingerprint)).plain
        self._defaults = flatten(dict(defaults)).plain
        self._peers = peers
        self._saves = 0
        # What is known of the steps; a milestone's own file says so, for the next process.
        self._milestones: dict[str, bool] = {}

    def prepare(self) -> None:
        """Create the folder, and remove the temporary files of a killed process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind in ("step-*", "best-*"):
            remove_temporaries(self.folder, kind + SUFFIX)
            for part in self.folder.glob(kind):
                remove_temporaries(part, f"*{SUFFIX}")
                remove_temporaries(part, INDEX)

    def save(self, flat: Flat, *, step: int, is_milestone: bool = False) -> None:
        """Write one step's state durably, then prune to the newest ones and the milestones.

        Raises:
            CheckpointWriteError: it could not be written; existing checkpoints are untouched.
        """
        path = self._write(f"step-{step:08d}", flat, about={}, is_milestone=is_milestone)
        self._milestones[path.name] = is_milestone
        self._remove_duplicates(path)
        surplus = [older for older in self.list_steps()[self._keep :] if not self._is_milestone(older)]
        self._prune(_STEP_NAME, surplus, before=step)

    def save_best(self, flat: Flat, *, step: int, rating: Rating) -> None:
        """Write weights durably if they are among the best, then prune to these; earlier ones win ties, NaN never wins.

        Weights that were rated by another metric don't count, and are pruned.

        Raises:
            CheckpointWriteError: they could not be written; existing checkpoints are untouched.
        """
        stem = f"best-{step:08d}"
        with self._translate_os_errors(stem):
            rated = self._all_gather_ratings(stem)
        others = {name: one for name, one in rated.items() if Path(name).stem != stem and one[0] == rating.scale}
        is_better = sum(rank >= rating.rank for _, rank, _ in others.values()) < self._keep_best
        if not math.isfinite(rating.value) or not is_better:
            return
        path = self._write(stem, flat, about={"rating": rating.dump(), "fingerprint": self._fingerprint})
        kept = sort_rated({**others, path.name: (rating.scale, rating.rank, -step)})[: self._keep_best]
        self._prune(_BEST_NAME, [self.folder / name for name in self.rate_best() if name not in kept], before=step)

    def list_steps(self) -> list[Path]:
        """List the step checkpoints, newest first."""
        return [path for _, path in sorted(self._list(_STEP_NAME), reverse=True) if is_whole(path)]

    def list_best(self) -> list[Path]:
        """List the best weights of this configuration, best first, without damaged ones."""
        return [self.folder / name for name in sort_rated(self.rate_best())]

    def rate_best(self) -> Rated:
        """Rate the best weights of this configuration by the metric in their headers."""
        ratings = {path.name: (self._read_rating(path), step) for step, path in self._list_best()}
        return {name: (one.scale, one.rank, -step) for name, (one, step) in ratings.items() if one is not None}

    def list_unusable_best(self) -> list[str]:
        """List the best weights whose header is damaged, and those of another configuration."""
        return [path.name for _, path in self._list_best() if self._read_rating(path) is None]

    def newest_name(self) -> str | None:
        """Return the newest step checkpoint's name, if there is one."""
        steps = self.list_steps()
        return steps[0].name if steps else None

    def set_aside(self, name: str) -> None:
        """Rename a checkpoint that doesn't load, so that it is no longer found; a peer may already have done so."""
        free = f"{name}.damaged"
        for number in count(2):
            if not (self.folder / free).exists():
                break
            free = f"{name}.damaged-{number}"
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / free)

    def shorten_waits(self) -> None:
        """Shorten waits for peers, because this process is about to exit."""
        if self._peers:
            self._peers.shorten_waits()

    def fail(self, why: str) -> None:
        """Make the peers' waits fail, because this process no longer writes."""
        if self._peers:
            self._peers.fail(why)

    def _all_gather_ratings(self, stem: str) -> Rated:
        """Collect the ratings of the best weights on all peers' disks."""
        mine = self.rate_best()
        if not self._peers:
            return mine
        topic = f"{self._saves}/{stem}/rated"
        self._peers.publish(topic, json.dumps(mine))
        told = [json.loads(text) for text in self._peers.all_gather(topic)]
        return {name: (scale, rank, order) for each in told for name, (scale, rank, order) in each.items()}

    def _list(self, name: re.Pattern[str]) -> list[tuple[int, Path]]:
        if not self.folder.is_dir():
            return []
        return [(int(match[1]), path) for path in self.folder.iterdir() if (match := name.fullmatch(path.name))]

    def _read_rating(self, path: Path) -> Rating | None:
        """Read the rating of some weights: None if they are damaged or belong to another configuration."""
        try:
            about = read_index(path).about if path.is_dir() else read_header(path).plain
            if find_differences({**self._defaults, **about["fingerprint"]}, self._fingerprint):
                return None
            rating = Rating(**about["rating"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return rating if rating.rank > -math.inf else None

    def _is_milestone(self, path: Path) -> bool:
        """Whether a step is never pruned. Nobody can tell of a damaged one: it isn't."""
        if path.name not in self._milestones:
            self._milestones[path.name] = is_milestone(path)
        return self._milestones[path.name]

    def _list_best(self) -> list[tuple[int, Path]]:
        return [(step, path) for step, path in self._list(_BEST_NAME) if is_whole(path)]

    def _remove_duplicates(self, path: Path) -> None:
        """Remove a checkpoint of the same step in another form (file or folder)."""
        for step in self.list_steps():
            if step.stem == path.stem and step != path:
                remove_checkpoint(step)

    def _prune(self, name: re.Pattern[str], surplus: list[Path], *, before: int) -> None:
        """Remove surplus checkpoints, and unfinished ones of earlier steps, which nobody writes any more."""
        unfinished = [path for step, path in self._list(name) if step < before and not is_whole(path)]
        for path in (*surplus, *unfinished):
            remove_checkpoint(path)

    def _write(self, stem: str, flat: Flat, *, about: Mapping[str, Any], is_milestone: bool = False) -> Path:
        self._saves += 1
        path = self.folder / (stem if self._peers else f"{stem}{SUFFIX}")
        with self._translate_os_errors(path.name):
            if self._peers:
                about = {**about, **({MILESTONE: True} if is_milestone else {})}
                write_sharded(path, flat, peers=self._peers, topic=f"{self._saves}/{stem}", about=about)
            else:
                write = partial(write_document, flat=flat, is_milestone=is_milestone)
                write_atomically(path, write, open_stream=open_direct)
        return path

    @contextmanager
    def _translate_os_errors(self, name: str) -> Iterator[None]:
        """Turn an OSError into a CheckpointWriteError, and tell the peers."""
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
    """List the settings that differ from an older fingerprint; settings that only the older one has are ignored."""
    return [key for key in ours if theirs.get(key) != ours[key]]


def sort_rated(rated: Rated) -> list[str]:
    """Sort the names of best weights, best first; ties in order of step.

    Only weights that are rated by the metric of the latest ones count: ranks of two metrics can't be compared.
    """
    scale, _, _ = min(rated.values(), key=lambda one: one[2], default=("", 0.0, 0))
    return sorted((name for name in rated if rated[name][0] == scale), key=lambda name: rated[name], reverse=True)


def load_checkpoint(path: Path, *, read: Callable[[Path], Any] = read_document) -> State:
    """Read one checkpoint file onto the CPU, checksums verified, no code executed.

    Args:
        path: the file.
        read: reads the current format; see `document` for the readers that leave the verification to a peer.

    Raises:
        DamagedCheckpointError: missing, truncated, corrupt, or not a kedge checkpoint.
    """
    try:
        state = read(path) if path.suffix == SUFFIX else _read_format_1(path)
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
