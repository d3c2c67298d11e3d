"""Deterministic data loading: batches and augmentation depend only on (seed, epoch, index).

So a run that was stopped within an epoch resumes with the same batches, augmentation included. Only a stream has a
position that has to be saved; numbered samples need none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch, Sample, SampleSource, StreamSource
from trainer.data.ahead import Copied, DeviceCopier, ReadAhead, take_one_ahead
from trainer.data.batch import move_batch, stack_samples
from trainer.data.order import Key, KeyedSampler, SliceSampler
from trainer.data.seeded import SampleRng, SeededCollate, restored_together
from trainer.data.streams import MakeBatch, StreamBatch, StreamPlace, StreamReader, StreamRequest
from trainer.data.workers import Workers

Collate = Callable[[list[Sample]], Batch]


class BatchLoader:
    """Loads one process's batches of one source, the same ones for any number of worker processes.

    The worker processes start with the first batch and serve all epochs until `close`. A stream is read by one worker
    process however many are asked for. Only one iterator can be in use at a time.
    """

    def __init__(
        self,
        source: SampleSource | StreamSource,
        *,
        seed: int,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        collate: Collate | None = None,
    ) -> None:
        self._source = source
        self._seed = seed
        self._device = device
        self._rank = rank
        self._world_size = world_size
        self._place = StreamPlace(rank=rank, world_size=world_size)
        self._read: Callable[[Any], Any] = self._make_reader(collate)
        count = min(workers, 1) if isinstance(source, StreamSource) else workers
        self._workers: Workers[Any] | None = Workers(self._read, count=count) if count else None
        self._copier = DeviceCopier(device) if device.type == "cuda" else None
        self._ahead: ReadAhead[Any] | None = None

    def batches(self, *, epoch: int, batch_size: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield this process's shares of an epoch's global batches, on the device.

        Args:
            epoch: counted from 0.
            batch_size: samples of one step, over all processes.
            first_step: the steps of this epoch that are done already.

        Raises:
            BadRequestError: the source's own order can't be used.
        """
        if isinstance(self._source, StreamSource):
            return self._stream(epoch, batch_size, first_step)
        sampler = KeyedSampler(
            samples=len(self._source),
            batch_size=batch_size,
            rank=self._rank,
            world_size=self._world_size,
            seed=self._seed,
            epoch=epoch,
            first_step=first_step,
            source=self._source,
        )
        return self._load(enumerate(sampler, first_step))

    def shares(self, *, per_device: int) -> Iterator[tuple[Batch, int]]:
        """Yield this process's share of the whole source in order, on the device, for validation.

        With each batch comes the number of its samples that count: the rest is padding.

        Raises:
            BadRequestError: the source is a stream.
        """
        if isinstance(self._source, StreamSource):
            raise BadRequestError(
                "validation data can't be a stream",
                why="every validation measures the same samples, shared by the processes",
                fix="give the workload numbered samples as validation_data: __len__ and sample(index, rng)",
            )
        sampler = SliceSampler(
            samples=len(self._source), per_device=per_device, rank=self._rank, world_size=self._world_size
        )
        for number, batch in enumerate(self._load(enumerate(sampler))):
            yield batch, sampler.count(number)

    def state(self) -> dict[str, Any]:
        """Return the position in a stream after the last batch that was yielded, as plain data; empty without one."""
        return self._place.state()

    def load_state(self, state: dict[str, Any]) -> str | None:
        """Take the position that this process had saved; the next `batches` goes on there.

        If the number of processes has changed, any process's position will do.

        Returns:
            What to tell the user: None if exactly the samples follow that would have followed.

        Raises:
            BadRequestError: the state isn't a stream's.
        """
        return self._place.load(state)

    def close(self) -> None:
        """End the worker processes, and what reads ahead; both start again when they are needed."""
        if self._workers:
            self._workers.close()
        if self._ahead:
            self._ahead.close()

    def _make_reader(self, collate: Collate | None) -> Callable[[Any], Any]:
        # Only a recipe's own collate draws random numbers: seeding for the others would cost time for nothing.
        make = SeededCollate(collate, seed=self._seed, rank=self._rank) if collate else _stack
        if isinstance(self._source, StreamSource):
            reader = StreamReader(self._source, make, rank=self._rank, world_size=self._world_size, seed=self._seed)
            return reader.read
        return _KeyedReader(self._source, self._seed, make).read

    def _stream(self, epoch: int, batch_size: int, first_step: int) -> Iterator[Batch]:
        start = self._place.find_start(epoch=epoch, samples=first_step * batch_size)
        steps = range(first_step, len(self._source) // batch_size)
        per_device = batch_size // self._world_size
        requests = (StreamRequest(per_device, step, start if step == first_step else None) for step in steps)
        for step, (batch, read) in zip(steps, self._load(requests), strict=True):
            self._place.note(epoch=epoch, samples=(step + 1) * batch_size, read=read)
            yield batch

    def _load(self, requests: Iterable[Any]) -> Iterator[Any]:
        """Yield what was read, on the device; of a stream, with its position."""
        results = self._workers.read_all(requests) if self._workers else map(self._read, requests)
        if self._copier is None:
            return map(self._move, results)
        return self._load_ahead(results, self._copier)

    def _load_ahead(self, results: Iterator[Any], copier: DeviceCopier) -> Iterator[Any]:
        """Read one batch ahead of the step, and copy it while the step runs.

        A thread does that if worker processes read. Else samples are made in this thread: they may draw from the
        generators that the model draws from.
        """

        def start(result: Any) -> tuple[Copied, Any]:
            batch = result.batch if isinstance(result, StreamBatch) else result
            return copier.start(batch), result

        def finish(started: tuple[Copied, Any]) -> Any:
            batch = copier.finish(started[0])
            return (batch, started[1]) if isinstance(started[1], StreamBatch) else batch

        if not self._workers:
            yield from map(finish, take_one_ahead(map(start, results)))
            return
        ahead = self._ahead = ReadAhead(results, start)
        try:
            yield from map(finish, ahead)
        finally:
            if not ahead.close():  # a worker hangs in a sample
                self._workers.close()

    def _move(self, result: Any) -> Any:
        if isinstance(result, StreamBatch):
            return move_batch(result.batch, self._device), result
        return move_batch(result, self._device)


def _stack(samples: list[Sample], *, epoch: int, step: int) -> Batch:  # noqa: ARG001 - the same for all of them
    return stack_samples(samples)


class _KeyedReader:
    def __init__(self, source: SampleSource, seed: int, collate: MakeBatch) -> None:
        self._source = source
        self._rng = SampleRng(seed)
        self._collate = collate

    def read(self, request: tuple[int, list[Key]]) -> Batch:
        """Make a step's batch of the samples with these keys."""
        step, keys = request
        sample, at = self._source.sample, self._rng.at
        with restored_together():
            samples = [sample(index, at(epoch, index)) for epoch, index in keys]
            return self._collate(samples, epoch=keys[0][0], step=step)
