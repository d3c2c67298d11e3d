"""A loader's worker processes: started once, kept for the whole run, and never left behind."""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data._utils import signal_handling

_SECONDS_BETWEEN_LOOKS = 1.0
# Copies of this process can use what can't be pickled: functions within functions, recipes outside of any package.
# Python 3.14 would start new processes instead.
_START_METHOD = "fork" if sys.platform == "linux" else None
T = TypeVar("T")


class Workers(Generic[T]):
    """Calls `read(request)` in worker processes, and yields the results in the order of the requests.

    The processes start at the first `read_all`, as copies of this one, and serve all later ones. Only one iterator can
    be in use: a new `read_all` ends the one before.
    """

    def __init__(self, read: Callable[[Any], T], *, count: int) -> None:
        self._requests = _Requests()
        self._loader: DataLoader[T] = DataLoader(
            _Reads(read),
            batch_size=None,
            sampler=self._requests,
            collate_fn=_keep,
            num_workers=count,
            persistent_workers=True,
            multiprocessing_context=_START_METHOD,
            worker_init_fn=_guard,
            # The loader draws from a generator whenever it starts. Drawing from the global one would shift the model's
            # own randomness (dropout) in a resumed epoch.
            generator=torch.Generator(),
        )
        self._iterator: Any = None

    def read_all(self, requests: Iterable[Any]) -> Iterator[T]:
        """Start reading ahead, and return the results.

        Errors of `read` are raised here, with the worker's traceback as a note.
        """
        self._requests.aim(requests)
        self._iterator = iter(self._loader)
        return _results(self._iterator)

    def close(self) -> None:
        """End the processes at once, also one that is busy with a sample."""
        iterator, self._iterator = self._iterator, None
        self._loader._iterator = None  # it would be asked again
        if iterator is None:
            return
        # A worker that is ended before it handles SIGTERM would count as one that has crashed.
        if getattr(iterator, "_worker_pids_set", False):
            signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # torch doesn't export it
            iterator._worker_pids_set = False
        for process in getattr(iterator, "_workers", ()):
            process.terminate()
        iterator._shutdown_workers()


def _results(iterator: Iterator[Any]) -> Iterator[Any]:
    for result in iterator:
        if isinstance(result, _Failure):
            raise result.error
        yield result


class _Requests(Sampler[Any]):
    """The requests of one `read_all`; the loader asks for an iterator each time that it starts."""

    def __init__(self) -> None:
        self._requests: Iterable[Any] = ()

    def aim(self, requests: Iterable[Any]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Any]:
        return iter(self._requests)


class _Reads(Dataset[T]):
    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read

    def __getitem__(self, request: Any) -> Any:
        """Read; return an error instead of raising it: torch's loader would make one of another type of it."""
        try:
            return self._read(request)
        except Exception as err:
            if not _is_picklable(err):
                raise
            err.add_note(f"in a loader's worker process:\n{traceback.format_exc()}")
            return _Failure(err)


@dataclass(frozen=True, slots=True)
class _Failure:
    error: Exception


def _is_picklable(err: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(err))) is type(err)  # noqa: S301 - pickled right here
    except Exception:  # noqa: BLE001 - whatever its own methods raise
        return False


def _keep(result: T) -> T:
    return result


def _guard(_worker: int) -> None:
    """Let a worker ignore a stop that was sent to all processes, because the trainer still needs its workers.

    A thread ends it when its parent asks for that, or is gone.
    """
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigtimedwait"):
        # Blocked, so that the thread receives it, with its sender.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    else:  # macOS
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(parent,), name="parent", daemon=True).start()


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent and not _is_asked_to_end(parent):
        pass
    os._exit(0)


def _is_asked_to_end(parent: int) -> bool:
    """Wait a second for the parent's SIGTERM; return whether it came."""
    if not hasattr(signal, "sigtimedwait"):
        return threading.Event().wait(_SECONDS_BETWEEN_LOOKS)
    received = signal.sigtimedwait({signal.SIGTERM}, _SECONDS_BETWEEN_LOOKS)
    return received is not None and received.si_pid == parent
