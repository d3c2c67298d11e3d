"""A fresh start for every group of processes: torchrun's store outlives a restart, and so do the keys in it.

A process that reads the address that a peer had before the restart connects to nobody, or waits for ever. So each
group works under a name of its own, which only processes of this very start get to know.
"""

import time
import uuid

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.errors import TrainerError

PATIENCE_SECONDS = 300.0
_PAUSE_SECONDS = 0.02


def open_group_store(store: Store, *, rank: int, size: int) -> Store:
    """Agree with the other processes of this start on a part of the store that no earlier start has used.

    Raises:
        TrainerError: not all of them came within five minutes.
    """
    nonce = uuid.uuid4().hex
    deadline = time.monotonic() + PATIENCE_SECONDS
    if rank == 0:
        _answer_all(store, nonce, set(range(1, size)), deadline)
        return PrefixStore(nonce, store)
    store.set(f"hello/{rank}", nonce)
    while not store.check([f"answer/{nonce}"]):
        _pause(deadline)
    group = store.get(f"answer/{nonce}").decode()
    store.set(f"joined/{group}/{rank}", "1")
    return PrefixStore(group, store)


def _answer_all(store: Store, group: str, missing: set[int], deadline: float) -> None:
    """Tell every process the group's name until all have it: the first hello that is seen may be an old one's."""
    while missing:
        for rank in sorted(missing):
            if store.check([f"joined/{group}/{rank}"]):
                missing.discard(rank)
            elif store.check([f"hello/{rank}"]):
                store.set(f"answer/{store.get(f'hello/{rank}').decode()}", group)
        if missing:
            _pause(deadline)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TrainerError(
            "the processes did not all meet",
            why=f"some did not come within {PATIENCE_SECONDS:.0f} s",
            fix="see what the other processes or machines say, then start again",
        )
    time.sleep(_PAUSE_SECONDS)
