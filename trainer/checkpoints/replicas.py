"""Replicates shards to the disks of other nodes, so that a checkpoint survives the loss of a machine.

Each process sends its shard to a process of the next node, through connections that only writer threads use: training's
collectives aren't disturbed. Nodes that share a disk send nothing.
"""

import mmap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch.distributed import (  # type: ignore[attr-defined]  # public, but not in its __all__
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    Store,
)

from trainer.base.errors import first_line
from trainer.base.files import write_atomically
from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.nodes import plan_keepers
from trainer.checkpoints.peers import TIMEOUT_SECONDS, Peers

CHUNK_BYTES = 16 << 20
CHUNK_TIMEOUT_SECONDS = 60.0
"""How long a transfer may stand still: the peer's machine is gone."""


class ReplicatingPeers(Peers):
    """Peers that keep copies of each other's shards."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        nodes: Sequence[int],
        replicas: int,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Connect the processes; collective, and not while another thread waits in a collective.

        Args:
            store: the key-value store of the rendezvous.
            rank: this process.
            nodes: each process's node, by rank.
            replicas: how many other nodes keep a copy of each shard.
            timeout_seconds: how long this process waits for a slower peer.
        """
        is_local_main = rank == nodes.index(nodes[rank])
        super().__init__(
            store, rank=rank, size=len(nodes), is_local_main=is_local_main, timeout_seconds=timeout_seconds
        )
        self._rounds = [plan_keepers(nodes, distance) for distance in range(1, min(replicas + 1, len(set(nodes))))]
        timeout = timedelta(seconds=CHUNK_TIMEOUT_SECONDS)
        # Its type stub lacks `send` and `recv`.
        self._group = cast("ProcessGroup", ProcessGroupGloo(PrefixStore("replicas", store), rank, len(nodes), timeout))

    def replicate(
        self,
        topic: str,
        *,
        paths: Sequence[Path],
        lengths: Sequence[Sequence[int]],
        pieces: Sequence[memoryview],
        is_here: Callable[[int], bool],
    ) -> None:
        """Send this process's shard to its keepers, write the shards that it keeps, and wait for the others' replicas.

        Raises:
            OSError: a disk refuses, or a peer is gone; TimeoutError if one is too slow.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="replica") as sender:
            for number, keepers in enumerate(self._rounds):
                sources = [other for other, keeper in enumerate(keepers) if keeper == self.rank and not is_here(other)]
                self.publish(f"{topic}/wants{number}", " ".join(map(str, sources)))
                wanted = self.receive(f"{topic}/wants{number}", keepers[self.rank]).split()
                sending = sender.submit(self._send, pieces if str(self.rank) in wanted else (), keepers[self.rank])
                for source in sources:
                    receive = partial(self._receive, source=source, lengths=lengths[source])
                    write_atomically(paths[source], receive, open_stream=open_direct)
                    if not is_here(source):
                        raise OSError(f"the replica of process {source}'s shard is damaged")
                sending.result()
        self.publish(f"{topic}/replicated", "yes")
        self.all_gather(f"{topic}/replicated")

    def _send(self, pieces: Sequence[memoryview], keeper: int) -> None:
        for piece in pieces:
            # A header is read-only, which torch doesn't support; the rest isn't copied.
            content = torch.frombuffer(bytearray(piece) if piece.readonly else piece, dtype=torch.uint8)
            for begin, end in _chunks(len(piece)):
                with _translate_errors(keeper):
                    self._group.send([content[begin:end]], keeper, 0).wait()

    def _receive(self, stream: BinaryIO, *, source: int, lengths: Sequence[int]) -> None:
        # An anonymous mapping is page-aligned: it is written to disk without a copy.
        buffer = torch.frombuffer(mmap.mmap(-1, CHUNK_BYTES), dtype=torch.uint8)
        for length in lengths:
            for begin, end in _chunks(length):
                with _translate_errors(source):
                    self._group.recv([buffer[: end - begin]], source, 0).wait()
                stream.write(buffer[: end - begin].numpy().data)


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, length, CHUNK_BYTES):
        yield begin, min(begin + CHUNK_BYTES, length)


@contextmanager
def _translate_errors(other: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as err:
        raise ConnectionError(f"process {other} is gone, or its connection: {first_line(err)}") from err
