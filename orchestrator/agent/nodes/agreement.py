"""What the machines of a group start from: the same script, and the newest checkpoint that all of them have.

Where each machine writes its own part of a checkpoint, under the same name, a newer one may be whole on some machines
only. Where the head writes all of it, the others have none, and follow the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..base.tree_rule import is_tree_path
from .channel import Message

MOST_CHECKPOINTS = 20
"""How many of its checkpoints, newest first, a machine names to the head."""
_LONGEST_NAME = 255
_MOST_FILES = 600
"""How many files' names a message has room for; a machine has a few of each checkpoint."""


class Start(NamedTuple):
    """What a machine can start from; or, as agreed, does start from.

    Attributes:
        can_resume: whether there is something to resume from.
        checkpoints: names, newest first; as agreed, one for all, or none: each machine takes its own newest one.
        versions: of this machine's part of each of them.
        without_index: those of which this machine has shards, but not the index that makes them a whole.
        shards: of each checkpoint, the names of the files that this machine has of it.
        lacks: of each, those that its index lists, and that are neither here nor in the store.
        rank: the machine's number.
        holders: as agreed, the machines that have a part of the checkpoint, with the versions of their parts.
    """

    can_resume: bool = False
    checkpoints: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    without_index: tuple[str, ...] = ()
    shards: tuple[tuple[str, ...], ...] = ()
    lacks: tuple[tuple[str, ...], ...] = ()
    rank: int = 0
    holders: tuple[tuple[int, str], ...] = ()

    def as_message(self) -> Message:
        """Return it as part of a message."""
        return {
            "can_resume": self.can_resume,
            "checkpoints": list(self.checkpoints[:MOST_CHECKPOINTS]),
            "versions": list(self.versions[:MOST_CHECKPOINTS]),
            "without_index": list(self.without_index[:MOST_CHECKPOINTS]),
            "shards": [list(each) for each in _bounded(self.shards)],
            "lacks": [list(each) for each in _bounded(self.lacks)],
            "rank": self.rank,
            "holders": [list(each) for each in self.holders],
        }

    def of(self, name: str, lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return what one of the lists has about a checkpoint."""
        return dict(zip(self.checkpoints, lists, strict=False)).get(name, ())

    def version(self, name: str) -> str:
        """Return the version of this machine's part of a checkpoint; empty if it names none."""
        return dict(zip(self.checkpoints, self.versions, strict=False)).get(name, "")


def parse_start(message: Message) -> Start:
    """Take it from a message; invalid parts are left out."""
    fit = [name for name in _texts(message, "checkpoints") if _is_name(name)]
    rank, rows = message.get("rank"), message.get("holders")
    return Start(
        can_resume=message.get("can_resume") is True,
        checkpoints=tuple(fit[:MOST_CHECKPOINTS]),
        versions=tuple(_texts(message, "versions")[:MOST_CHECKPOINTS]),
        without_index=tuple(_texts(message, "without_index")[:MOST_CHECKPOINTS]),
        shards=_lists(message, "shards"),
        lacks=_lists(message, "lacks"),
        rank=rank if type(rank) is int else 0,
        holders=tuple(filter(None, map(_parse_holder, rows if isinstance(rows, list) else []))),
    )


def agree(starts: Sequence[Start]) -> Start:
    """Decide for all machines, the head first."""
    having = [start for start in starts if start.checkpoints]
    names = having[0].checkpoints if having else ()
    common = next((name for name in names if _is_whole(name, having)), "")
    if not common:
        is_lost = bool(names) and all(_lacks(name, having) for name in names)
        return Start(starts[0].can_resume and not is_lost)
    holders = tuple((start.rank, start.version(common)) for start in having)
    return Start(any(start.can_resume for start in starts), (common,), holders=holders)


def _is_whole(name: str, having: Sequence[Start]) -> bool:
    """Whether all that have checkpoints have this one, one of them its index, and all of them what that lists."""
    is_common = all(name in start.checkpoints for start in having)
    has_index = not all(name in start.without_index for start in having)
    return is_common and has_index and not _lacks(name, having)


def _lacks(name: str, having: Sequence[Start]) -> set[str]:
    """Return the files of a checkpoint that neither the store nor any of these machines has."""
    lacking = {file for start in having for file in start.of(name, start.lacks)}
    return lacking - {file for start in having for file in start.of(name, start.shards)}


def _bounded(lists: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Leave out what a message has no room for; the files of the newest checkpoints come first."""
    left, found = _MOST_FILES, []
    for files in lists[:MOST_CHECKPOINTS]:
        left -= len(files)
        found.append(files if left >= 0 else ())
    return found


def _is_name(text: str) -> bool:
    return is_tree_path(text) and "/" not in text and len(text) <= _LONGEST_NAME


def _lists(message: Message, key: str) -> tuple[tuple[str, ...], ...]:
    rows = message.get(key)
    lists = [row if isinstance(row, list) else [] for row in rows] if isinstance(rows, list) else []
    return tuple(tuple(each for each in row if isinstance(each, str)) for row in lists[:MOST_CHECKPOINTS])


def _texts(message: Message, key: str) -> list[str]:
    rows = message.get(key)
    return [row for row in rows if isinstance(row, str)] if isinstance(rows, list) else []


def _parse_holder(row: object) -> tuple[int, str] | None:
    match row:
        case [int(rank), str(version)]:
            return rank, version
        case _:
            return None
