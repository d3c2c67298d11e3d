"""`kedge-data://NAME`: a data set of the laptop's, which lies in the machine's own store.

Unlike other sources it grows in its place: what lies there already, on a data volume for example, isn't fetched again.
"""

from __future__ import annotations

from pathlib import Path

from ..datasets import locked_for_pulling, open_data, pull
from ..layout import Layout
from ..wire import MachineConfig
from .tally import Tally

SCHEME = "kedge-data://"


def mirror(layout: Layout, machine: MachineConfig, address: str, target: Path, tally: Tally) -> None:
    """Bring the target to the state of the data set.

    Raises:
        AgentError: there is no such data set, or it is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    store = open_data(machine, address.removeprefix(SCHEME))

    def count(done: int, total: int) -> None:
        tally.expect(size=total, files=0)
        tally.set(done)

    with locked_for_pulling(layout):
        index = pull(store, target, count)
    tally.files = len(index.files)
    tally.keep(sum(file.bytes for file in index.files) - tally.bytes)
