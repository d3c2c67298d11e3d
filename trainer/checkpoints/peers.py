"""Messages between the writer threads of the processes that save one sharded checkpoint.

They go through the rendezvous store and not through collectives, because training uses those at the same time.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

TIMEOUT_SECONDS = 600.0
"""How long this process waits for a slower peer."""
EXIT_TIMEOUT_SECONDS = 5.0
"""How long a process that is about to exit waits for peers that are still writing."""
_PAUSE_SECONDS = 0.02
_FAILED = "failed"


class Peers:
    """This process and the others that write. A topic's message can be published once, and stays readable."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        is_local_main: bool,
        timeout_seconds: float = TIMEOUT_SECONDS,
        exit_timeout_seconds: float = EXIT_TIMEOUT_SECONDS,
    ) -> None:
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._exit_timeout_seconds = exit_timeout_seconds
        self._exit_at = math.inf
        self.rank = rank
        self.size = size
        self.is_local_main = is_local_main

    def publish(self, topic: str, text: str) -> None:
        """Publish this process's message on a topic."""
        self._store.set(f"{topic}/{self.rank}", text)

    def receive(self, topic: str, rank: int) -> str:
        """Wait for a process's message.

        Raises:
            OSError: some process has failed; TimeoutError if the message didn't arrive in time.
        """
        key, give_up_at = f"{topic}/{rank}", time.monotonic() + self._timeout_seconds
        while not self._store.check([key]):
            if self._store.check([_FAILED]):
                raise OSError(bytes(self._store.get(_FAILED)).decode())
            if time.monotonic() > min(give_up_at, self._exit_at):
                raise TimeoutError(f"process {rank} is gone, or has not finished its shard")
            time.sleep(_PAUSE_SECONDS)
        return bytes(self._store.get(key)).decode()

    def all_gather(self, topic: str) -> list[str]:
        """Wait for every process's message, by rank.

        Raises:
            OSError: as `receive`.
        """
        return [self.receive(topic, rank) for rank in range(self.size)]

    def broadcast_from_main(self, topic: str, make: Callable[[], str]) -> str:
        """Call a function on the main process and publish its result.

        Raises:
            OSError: as `receive`.
        """
        if self.rank == 0:
            self.publish(topic, make())
        return self.receive(topic, 0)

    def replicate(
        self,
        topic: str,
        *,
        paths: Sequence[Path],
        lengths: Sequence[Sequence[int]],
        pieces: Sequence[memoryview],
        is_here: Callable[[int], bool],
    ) -> None:
        """Copy the shards to other nodes' disks: these peers don't.

        Args:
            topic: a unique name for this save.
            paths: where each process's shard is on this disk, if it is here, by rank.
            lengths: the bytes of each piece of each process's shard.
            pieces: the content of this process's shard.
            is_here: whether this disk has a process's shard already.
        """

    def fail(self, why: str) -> None:
        """Make every wait fail, because this process no longer writes. The first reason is kept."""
        if not self._store.check([_FAILED]):
            self._store.set(_FAILED, f"process {self.rank}: {why}")

    def shorten_waits(self) -> None:
        """Shorten the timeout, because this process is about to exit."""
        self._exit_at = time.monotonic() + self._exit_timeout_seconds
