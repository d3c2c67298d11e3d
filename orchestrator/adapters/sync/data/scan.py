"""Takes a snapshot of a data set's source, without kedge's own files in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.adapters.sync.data_tree import only_to, unreadable, walk
from orchestrator.adapters.sync.snapshot import Snapshot, take_snapshot
from orchestrator.core.ports import Clock

# The agent's own files in a mirrored folder.
_OWN = ".kedge"


def scan(source: Path, clock: Clock, places: Sequence[str] = ()) -> Snapshot:
    """Take a snapshot of a folder or a file.

    Links inside the folder stay links. A link to one of the outside places is replaced by its target.

    Raises:
        BadRequestError: the source doesn't exist, something in it can't be read or sent, or a link leads elsewhere.
    """
    found = (item for item in walk(source, only_to(places)) if item.path.partition("/")[0] != _OWN)
    items = (item if item.path else item._replace(path=source.name) for item in found)
    try:
        return take_snapshot(items, clock, is_file=source.is_file())
    except OSError as err:
        raise unreadable(err, str(source)) from err
