"""Lines of logs of several tasks and machines: their order, and whose line each is."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

Key = TypeVar("Key")

_TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
_MACHINE = "machine"
"""Whose line it is if it belongs to no task; no task can have this name."""
_COLOURS = {"cyan": 36, "yellow": 33, "green": 32, "magenta": 35, "blue": 34, "red": 31}
"""rich's names of colours, and their numbers in control sequences."""
_UNCOLOURED = "\x1b[m"


class Labels:
    """Labels that say whose line it is: aligned, and coloured by task, or by node if there is one task.

    A label has no node if one machine is shown, and no task if one task is.

    Args:
        names: of the shown tasks.
        nodes: the shown machines' ranks.
    """

    def __init__(self, names: Sequence[str], nodes: Sequence[int] = (0,)) -> None:
        self._names = list(names) if len(names) > 1 else []
        self._nodes = list(nodes) if len(nodes) > 1 else []
        self._width = max((len(name) for name in (*self._names, _MACHINE)), default=0)
        self._digits = max((len(str(node)) for node in self._nodes), default=0)

    def label(self, task: str, node: int = 0) -> str:
        """Return the label of a task's line; that of the machine's log has no name."""
        parts = [f"node {node:<{self._digits}}"] if self._nodes else []
        parts += [f"{task or _MACHINE:<{self._width}}"] if self._names else []
        return f"{' '.join(parts)} | " if parts else ""

    def colour(self, task: str, node: int = 0) -> str:
        """Return rich's name of the label's colour; empty for the machine's log beside those of tasks."""
        order: list[Any] = self._names or self._nodes
        whose = task if self._names else node
        return list(_COLOURS)[order.index(whose) % len(_COLOURS)] if whose in order else ""

    def coded(self, task: str, node: int = 0) -> str:
        """Return the label with control sequences for its colour."""
        label, colour = self.label(task, node), self.colour(task, node)
        return f"\x1b[{_COLOURS[colour]}m{label}{_UNCOLOURED}" if colour else label


def merge_logs(logs: Mapping[Key, Iterable[bytes]]) -> list[tuple[Key, bytes]]:
    """Merge logs by the timestamps at the beginnings of their lines; return each line with its log's key.

    Logs of several machines are in the order of these machines' clocks.
    """
    ordered = heapq.merge(*(_timed(key, lines) for key, lines in logs.items()), key=itemgetter(0))
    return [(key, line) for _, key, line in ordered]


def _timed(key: Key, lines: Iterable[bytes]) -> Iterator[tuple[bytes, Key, bytes]]:
    """Add each line's time, which never decreases; a line without a timestamp has the time of the one before."""
    latest = b""
    for line in lines:
        found = _TIMESTAMP.match(line)
        latest = max(latest, found[0]) if found else latest
        yield latest, key, line
