"""Reads ahead: a thread pins batches and copies them to a GPU on a stream of its own, while the step runs."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from trainer.base.sources import Batch
from trainer.data.batch import map_parts, move_batch, moves_itself

_SECONDS_TO_END = 5.0
_END = object()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Copied:
    """A batch on its way to a GPU: `tensors` are the copies, `done` is recorded after them."""

    batch: Batch
    tensors: list[torch.Tensor]
    done: torch.cuda.Event | None


class DeviceCopier:
    """Copies batches to a GPU on a stream of its own. Tensors that are on a GPU already are left to the caller's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def start(self, batch: Batch) -> Copied:
        """Pin a batch and start its copy; any thread may call it."""
        tensors: list[torch.Tensor] = []
        torch.cuda.set_device(self._device)
        with torch.cuda.stream(self._stream):
            copied = self._copy(batch, tensors)
            return Copied(copied, tensors, self._stream.record_event() if tensors else None)

    def finish(self, copied: Copied) -> Batch:
        """Let the current stream wait for a copy, and return the batch."""
        if copied.done is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copied.done)
            for tensor in copied.tensors:
                # Its memory belongs to the copies' stream, which must not reuse it while a step still reads it.
                tensor.record_stream(current)
        return move_batch(copied.batch, self._device)  # what could not be copied there

    def _copy(self, batch: Batch, tensors: list[torch.Tensor]) -> Batch:
        if moves_itself(batch):
            return batch
        if not isinstance(batch, torch.Tensor):
            return map_parts(batch, lambda part: self._copy(part, tensors))
        if batch.device.type != "cpu" or batch.layout != torch.strided:
            return batch
        pinned = batch if batch.is_pinned() else batch.pin_memory()
        # The pinned memory isn't reused before the copy is done: torch's allocator notes the stream.
        tensors.append(pinned.to(self._device, non_blocking=True))
        return tensors[-1]


class ReadAhead(Generic[T]):
    """Iterates over `prepare(item)` for an iterator's items, which a thread takes and prepares ahead.

    `ready` are the prepared items that wait at most; another is being prepared meanwhile.
    """

    def __init__(self, items: Iterator[Any], prepare: Callable[[Any], T], *, ready: int = 1) -> None:
        self._items = items
        self._prepare = prepare
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=ready)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        """Yield the prepared items; an error of the thread is raised here."""
        while (item := self._queue.get()) is not _END:
            if isinstance(item, _Raised):
                raise item.error
            yield item

    def close(self) -> bool:
        """End the thread after the item that it waits for; return whether it has ended within a few seconds."""
        self._is_closed.set()
        self._drain()
        self._thread.join(_SECONDS_TO_END)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put(self._prepare(item)):
                    return
            self._put(_END)
        except BaseException as err:  # noqa: BLE001 - raised again where the batches are used
            self._put(_Raised(err))

    def _put(self, item: Any) -> bool:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _drain(self) -> None:
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


def take_one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, each after the next one has been taken."""
    for before in items:
        for item in items:
            yield before
            before = item  # noqa: PLW2901 - the next one's turn
        yield before
