"""The processes that write one checkpoint together, seen from one of their writers' threads.

They tell one another through the store in which they met, and not by collectives: the training has those for itself.
"""

import math
import time

from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

PATIENCE_SECONDS = 600.0
"""How long another process may need longer than this one."""
PARTING_SECONDS = 5.0
"""How long a process that is about to end waits for what others still write."""
_PAUSE_SECONDS = 0.02


class Peers:
    """This process among those that write. What is once said on a topic stays said."""

    def __init__(self, store: Store, *, rank: int, size: int, leads_machine: bool) -> None:
        self._store = store
        self._parting = math.inf
        self.rank = rank
        self.size = size
        self.leads_machine = leads_machine

    def tell(self, topic: str, text: str) -> None:
        """Say something to all, once."""
        self._store.set(f"{topic}/{self.rank}", text)

    def hear(self, topic: str, rank: int) -> str:
        """Wait for what a process says.

        Raises:
            TimeoutError: it said nothing.
        """
        key, deadline = f"{topic}/{rank}", time.monotonic() + PATIENCE_SECONDS
        while not self._store.check([key]):
            if time.monotonic() > min(deadline, self._parting):
                raise TimeoutError(f"process {rank} is gone, or has not finished its part")
            time.sleep(_PAUSE_SECONDS)
        return bytes(self._store.get(key)).decode()

    def part(self) -> None:
        """Wait for nobody much longer: this process is about to end."""
        self._parting = time.monotonic() + PARTING_SECONDS
