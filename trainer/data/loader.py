"""Deterministic data loading: batches and augmentation depend only on (seed, epoch, index).

So a run that was stopped within an epoch resumes with the same batches, augmentation included, and no loader state
has to be saved.
"""

import signal
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from trainer.base.sources import Batch, Sample, SampleSource, StreamSource
from trainer.data.batch import move_batch, pin_batch, stack_samples
from trainer.data.order import Key, KeyedSampler, SliceSampler
from trainer.data.seeded import SampleRng

Collate = Callable[[list[Sample]], Batch]


class BatchLoader:
    """Loads one process's batches of one source, the same ones for any number of worker processes."""

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
        self._workers = workers
        self._collate = collate or stack_samples

    def batches(self, *, epoch: int, batch_size: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield this process's shares of an epoch's global batches, on the device.

        Args:
            epoch: counted from 0.
            batch_size: samples of one step, over all processes.
            first_step: the steps of this epoch that are done already.
        """
        sampler = KeyedSampler(
            samples=len(self._source),
            batch_size=batch_size,
            rank=self._rank,
            world_size=self._world_size,
            seed=self._seed,
            epoch=epoch,
            first_step=first_step,
        )
        return self._load(sampler)

    def shares(self, *, per_device: int) -> Iterator[tuple[Batch, int]]:
        """Yield this process's share of the whole source in order, on the device, for validation.

        With each batch comes the number of its samples that count: the rest is padding.
        """
        sampler = SliceSampler(
            samples=len(self._source), per_device=per_device, rank=self._rank, world_size=self._world_size
        )
        for number, batch in enumerate(self._load(sampler)):
            yield batch, sampler.count(number)

    def close(self) -> None:
        """End the worker processes."""

    def _load(self, sampler: Sampler[list[Key]]) -> Iterator[Batch]:
        assert isinstance(self._source, SampleSource)
        dataset = _KeyedDataset(self._source, self._seed)
        batches = self._load_in_workers(dataset, sampler) if self._workers else self._load_here(dataset, sampler)
        for batch in batches:
            yield move_batch(batch, self._device)

    def _load_here(self, dataset: "_KeyedDataset", sampler: Sampler[list[Key]]) -> Iterator[Batch]:
        for keys in sampler:
            batch = self._collate(dataset.__getitems__(keys))
            yield pin_batch(batch) if self._device.type == "cuda" else batch

    def _load_in_workers(self, dataset: "_KeyedDataset", sampler: Sampler[list[Key]]) -> Iterator[Batch]:
        return iter(
            DataLoader(
                dataset,
                batch_sampler=sampler,
                collate_fn=self._collate,
                num_workers=self._workers,
                worker_init_fn=_ignore_stop_signals,
                # The loader draws from a generator whenever it starts. Drawing from the global one would shift the
                # model's own randomness (dropout) in a resumed epoch.
                generator=torch.Generator(),
            )
        )


def _ignore_stop_signals(_worker: int) -> None:
    """Ignore a signal sent to the whole process group: the trainer handles it, and ends its workers after saving."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _KeyedDataset(Dataset[Batch]):
    def __init__(self, source: SampleSource, seed: int) -> None:
        self._source = source
        self._rng = SampleRng(seed)

    def __getitem__(self, key: Key) -> Batch:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[Key]) -> list[Batch]:
        """Make a batch's samples; a loader prefers this method to fetching one by one."""
        sample, at = self._source.sample, self._rng.at
        return [sample(index, at(epoch, index)) for epoch, index in keys]
