"""Gives each start of a process group its own key prefix in torchrun's store, which keeps its keys over a restart.

A process that reads a peer's address from before the restart connects to nobody, or waits for ever. So each start uses
a name of its own as prefix, and only the processes of this start learn it.
"""

import time
import uuid

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.base.errors import TrainerError

TIMEOUT_SECONDS = 300.0
_PAUSE_SECONDS = 0.02


def open_group_store(store: Store, *, rank: int, size: int) -> Store:
    """Agree with the other processes of this start on a key prefix that no earlier start has used.

    Raises:
        TrainerError: not all of them joined within five minutes.
    """
    nonce = uuid.uuid4().hex
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    if rank == 0:
        _announce_group(store, nonce, set(range(1, size)), give_up_at)
        return PrefixStore(nonce, store)
    store.set(f"hello/{rank}", nonce)
    while not store.check([f"answer/{nonce}"]):
        _sleep_until_next_poll(give_up_at)
    group = store.get(f"answer/{nonce}").decode()
    store.set(f"joined/{group}/{rank}", "1")
    return PrefixStore(group, store)


def _announce_group(store: Store, group: str, missing: set[int], give_up_at: float) -> None:
    """Send every process the group's name until all have confirmed it: a first hello may be an earlier start's."""
    while missing:
        for rank in sorted(missing):
            if store.check([f"joined/{group}/{rank}"]):
                missing.discard(rank)
            elif store.check([f"hello/{rank}"]):
                store.set(f"answer/{store.get(f'hello/{rank}').decode()}", group)
        if missing:
            _sleep_until_next_poll(give_up_at)


def _sleep_until_next_poll(give_up_at: float) -> None:
    if time.monotonic() > give_up_at:
        raise TrainerError(
            "not all processes joined the group",
            why=f"some did not join within {TIMEOUT_SECONDS:.0f} s",
            fix="look at the output of the other processes or machines, then start again",
        )
    time.sleep(_PAUSE_SECONDS)
