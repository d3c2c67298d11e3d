"""Process groups that restart on a store with keys from the last start."""

from concurrent.futures import ThreadPoolExecutor

from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.group.rendezvous import open_group_store


def start_group(store: Store, size: int) -> list[Store]:
    with ThreadPoolExecutor(size) as pool:
        started = [pool.submit(open_group_store, store, rank=rank, size=size) for rank in range(size)]
        return [future.result(timeout=60) for future in started]


def test_group_uses_a_key_prefix_that_no_earlier_group_has_used() -> None:
    """Three starts on one store, the second with another size: each sees its own keys, and none of the others'."""
    store = HashStore()
    for size in (3, 2, 3):
        group = start_group(store, size)
        assert not any(part.check(["address"]) for part in group)
        group[0].set("address", str(size))
        assert [part.get("address").decode() for part in group] == [str(size)] * size
