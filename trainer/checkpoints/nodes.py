"""Which processes share a disk or a machine, found without the user's help."""

import platform
from collections.abc import Hashable, Sequence
from pathlib import Path

Place = tuple[str, int, int]
"""A file or a folder as one machine sees it: the machine, the file system, the inode."""


def find_place(path: Path) -> Place | None:
    """Return what two processes have in common if they share this path's page cache; None if it doesn't exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _machine(), status.st_dev, status.st_ino


def is_first(rank: int, places: Sequence[Hashable]) -> bool:
    """Whether no process with a smaller rank has the same place. Pure."""
    return places[rank] not in places[:rank]


def number_nodes(local_ranks: Sequence[int]) -> list[int]:
    """Return the number of each process's node; torchrun numbers a node's processes one after another. Pure."""
    nodes, node = [], -1
    for local_rank in local_ranks:
        node += local_rank == 0
        nodes.append(max(node, 0))
    return nodes


def plan_keepers(nodes: Sequence[int], distance: int) -> list[int]:
    """Choose the process that keeps a replica of each process's shard: on another node, at the same place there. Pure.

    Args:
        nodes: each process's node, by rank.
        distance: how many nodes further; less than the number of nodes.
    """
    members = {node: [rank for rank, its in enumerate(nodes) if its == node] for node in sorted(set(nodes))}
    order = list(members)
    keepers = []
    for rank, node in enumerate(nodes):
        others = members[order[(order.index(node) + distance) % len(order)]]
        keepers.append(others[members[node].index(rank) % len(others)])
    return keepers


def _machine() -> str:
    """Return the name of this boot of the machine, which its containers share, as they share the page cache."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
