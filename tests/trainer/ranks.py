"""Several ranks of one process group as threads of this process: real collectives over gloo, without torchrun."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import pytest
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__
from torch.testing._internal.distributed import multi_threaded_pg

from trainer.base.contract import read_contract
from trainer.group.distributed import ProcessGroup, process_group

TIMEOUT_SECONDS = 30.0
T = TypeVar("T")
# `process_group` says why a group of CPUs is never destroyed.
_kept: list[Any] = []


class OnRanks(Protocol):
    """Calls a function on each rank, and returns the results by rank; raises what the first to fail has raised."""

    def __call__(self, size: int, act: Callable[[ProcessGroup], T]) -> list[T]: ...


@contextmanager
def ranks_as_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnRanks]:
    """Give each thread a world of its own: torch has one for each process otherwise."""
    multi_threaded_pg._install_threaded_pg()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    _distributed_c10d._set_thread_isolation_mode(True)  # type: ignore[attr-defined]  # not in torch's stubs
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("RANK", "1")  # rank 0 would open a store of its own

    def on_ranks(size: int, act: Callable[[ProcessGroup], T]) -> list[T]:
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        monkeypatch.setenv("MASTER_PORT", str(server.port))
        monkeypatch.setenv("WORLD_SIZE", str(size))
        ended: queue.Queue[tuple[int, T | None, Exception | None]] = queue.Queue()
        for rank in range(size):
            # A rank whose peer has failed may wait for ever.
            threading.Thread(target=_run, args=(rank, size, act, ended), daemon=True).start()
        results: dict[int, Any] = {}
        for _ in range(size):
            rank, result, failure = ended.get(timeout=TIMEOUT_SECONDS)
            if failure is not None:
                raise failure
            results[rank] = result
        return [results[rank] for rank in range(size)]

    try:
        yield on_ranks
    finally:
        _distributed_c10d._set_thread_isolation_mode(False)  # type: ignore[attr-defined]  # the same
        multi_threaded_pg._uninstall_threaded_pg()  # type: ignore[no-untyped-call]  # the same


def _run(
    rank: int, size: int, act: Callable[[ProcessGroup], T], ended: "queue.Queue[tuple[int, T | None, Exception | None]]"
) -> None:
    try:
        environ = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        with process_group(read_contract(environ)) as group:
            _kept.append(dist.group.WORLD)
            result = act(group)
    except Exception as err:  # noqa: BLE001 - any failure is the caller's
        ended.put((rank, None, err))
    else:
        ended.put((rank, result, None))
