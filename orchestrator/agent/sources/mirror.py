"""`kedge-data://NAME`: a data set of the laptop's, which lies in the machine's own store.

Unlike other sources it grows in its place: what lies there already, on a data volume for example, isn't fetched again.
"""

from __future__ import annotations

from pathlib import Path

from ..datasets import locked_for_pulling, newest_pin, open_data, pull
from ..layout import Layout
from ..wire import DataSource, MachineConfig
from .tally import Tally

SCHEME = "kedge-data://"


def mirror(layout: Layout, machine: MachineConfig, source: DataSource, target: Path, tally: Tally) -> str:
    """Bring the target to the state of the data set, and return the pin by which it was taken.

    Raises:
        AgentError: there is no such data set, or another one, or it is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    store = open_data(machine, source.source.removeprefix(SCHEME))

    def count(done: int, total: int) -> None:
        tally.expect(size=total, files=0)
        tally.set(done)

    with locked_for_pulling(layout):
        # Under the lock: a `sync-data` that was before us may have said another one.
        pin = newest_pin(layout, target, source.index)
        index = pull(store, target, count, pin=pin)
    tally.files = len(index.files)
    tally.keep(sum(file.bytes for file in index.files) - tally.bytes)
    return pin
