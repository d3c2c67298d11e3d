"""The processes that write one checkpoint together, seen from one of their writers' threads.

They tell one another through the store in which they met, and not by collectives: the training has those for itself.
"""

import math
import time
from collections.abc import Callable

from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

PATIENCE_SECONDS = 600.0
"""How long another process may need longer than this one."""
LEAVING_SECONDS = 5.0
"""How long a process that is about to end waits for what others still write."""
_PAUSE_SECONDS = 0.02
_FAILED = "failed"


class Peers:
    """This process among those that write. What is once said on a topic stays said."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        leads_machine: bool,
        patience_seconds: float = PATIENCE_SECONDS,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        self._store = store
        self._patience_seconds = patience_seconds
        self._leaving_seconds = leaving_seconds
        self._leaves_at = math.inf
        self.rank = rank
        self.size = size
        self.leads_machine = leads_machine

    def tell(self, topic: str, text: str) -> None:
        """Say something to all, once."""
        self._store.set(f"{topic}/{self.rank}", text)

    def hear(self, topic: str, rank: int) -> str:
        """Wait for what a process says.

        Raises:
            OSError: some process has failed; or this one said nothing in time (TimeoutError).
        """
        key, deadline = f"{topic}/{rank}", time.monotonic() + self._patience_seconds
        while not self._store.check([key]):
            if self._store.check([_FAILED]):
                raise OSError(bytes(self._store.get(_FAILED)).decode())
            if time.monotonic() > min(deadline, self._leaves_at):
                raise TimeoutError(f"process {rank} is gone, or has not finished its part")
            time.sleep(_PAUSE_SECONDS)
        return bytes(self._store.get(key)).decode()

    def hear_all(self, topic: str) -> list[str]:
        """Wait for what all say, by rank.

        Raises:
            OSError: as `hear`.
        """
        return [self.hear(topic, rank) for rank in range(self.size)]

    def hear_main(self, topic: str, make: Callable[[], str]) -> str:
        """Have the main process make something and say it to all.

        Raises:
            OSError: as `hear`.
        """
        if self.rank == 0:
            self.tell(topic, make())
        return self.hear(topic, 0)

    def fail(self, why: str) -> None:
        """Tell all that they wait in vain: this process writes nothing any more. The first one's reason is kept."""
        if not self._store.check([_FAILED]):
            self._store.set(_FAILED, f"process {self.rank}: {why}")

    def leave_soon(self) -> None:
        """Wait for nobody much longer: this process is about to end."""
        self._leaves_at = time.monotonic() + self._leaving_seconds
