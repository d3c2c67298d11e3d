"""`kedge-data://NAME`: mirrors a data set that the laptop has synced to the machine's own store.

Unlike other sources it is updated in place: existing files, on a data volume for example, aren't fetched again.
"""

from __future__ import annotations

from pathlib import Path

from ...base.layout import Layout
from ...base.wire import DataSource, MachineConfig
from ..mirror import locked_for_pulling, mirror_data_set, newest_pin, open_data
from .transfer_progress import TransferProgress

SCHEME = "kedge-data://"


def mirror(layout: Layout, machine: MachineConfig, source: DataSource, target: Path, progress: TransferProgress) -> str:
    """Make the target equal to the data set, and return the pin that was used.

    Raises:
        AgentError: there is no such data set, another one has its name, or it is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    store = open_data(machine, source.source.removeprefix(SCHEME))

    def count(done: int, total: int) -> None:
        progress.expect(size=total, files=0)
        progress.set(done)

    with locked_for_pulling(layout):
        # Read under the lock, because a `sync-data` before us may have changed it.
        pin = newest_pin(layout, target, source.index)
        index = mirror_data_set(store, target, count, pin=pin)
    progress.files = len(index.files)
    progress.keep(sum(file.bytes for file in index.files) - progress.bytes)
    return pin
