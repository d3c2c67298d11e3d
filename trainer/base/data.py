"""Deterministic data loading: batches and augmentation depend only on (seed, epoch, index).

So a run that was stopped within an epoch resumes with the same batches, augmentation included, and no loader state
has to be saved.
"""

import signal
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

# Shape legend: B batch; the rest of a tensor's shape belongs to the recipe.
Batch = tuple[torch.Tensor, ...]
Key = tuple[int, int]  # epoch, index

_PERMUTATION_STREAM = 1
_SAMPLE_STREAM = 2


class SampleSource(Protocol):
    """A recipe's data: numbered samples, each a tuple of tensors without batch dimension."""

    def __len__(self) -> int:
        """Count the samples."""
        ...

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        """Make one sample; all of its randomness comes from `rng`."""
        ...


class KeyedSampler(Sampler[list[Key]]):
    """Yields one process's batches of one epoch, from any step on.

    Every process draws the same permutation and takes its own share of each global batch, so that
    the global batches are the same for any number of processes.
    """

    def __init__(
        self,
        *,
        samples: int,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        epoch: int,
        first_step: int = 0,
    ) -> None:
        self._per_device = batch_size // world_size
        self._batch_size = batch_size
        self._offset = rank * self._per_device
        self._epoch = epoch
        self._first_step = first_step
        self._steps = samples // batch_size
        self._order = np.random.default_rng((_PERMUTATION_STREAM, seed, epoch)).permutation(samples)

    def __len__(self) -> int:
        """Count the batches that are left."""
        return max(0, self._steps - self._first_step)

    def __iter__(self) -> Iterator[list[Key]]:
        """Iterate over the batches that are left, in order."""
        for step in range(self._first_step, self._steps):
            start = step * self._batch_size + self._offset
            yield [(self._epoch, index) for index in self._order[start : start + self._per_device].tolist()]


class SampleRng:
    """One generator that is set to a sample's own stream in 1 µs; making a new generator takes 9 µs.

    Philox (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011) is counter-based: the sample's key is the
    upper part of the counter, so that each sample has 2^64 blocks of its own.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)
        start = self._bits.state
        # Lists, because NumPy reads them twice as fast as its own arrays.
        self._counter = [0, 0, 0, _SAMPLE_STREAM]
        counted = {"counter": self._counter, "key": start["state"]["key"].tolist()}
        self._start: Any = {**start, "state": counted, "buffer": start["buffer"].tolist()}
        self._generator = np.random.Generator(self._bits)

    def at(self, epoch: int, index: int) -> np.random.Generator:
        """Return the generator for one sample of one epoch, valid until the next call."""
        self._counter[1], self._counter[2] = index, epoch
        self._bits.state = self._start
        return self._generator


def sample_rng(*, seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make the random generator for one sample of one epoch."""
    return SampleRng(seed).at(epoch, index)


def load_batches(
    source: SampleSource, sampler: Sampler[list[Key]], *, seed: int, device: torch.device, workers: int = 0
) -> Iterator[Batch]:
    """Yield the sampler's batches on the device, the same ones for any number of worker processes."""
    dataset = _KeyedDataset(source, seed)
    batches = _load_in_workers(dataset, sampler, device, workers) if workers else _load_here(dataset, sampler, device)
    if device.type == "cpu":
        yield from batches
    else:
        yield from (tuple(tensor.to(device, non_blocking=True) for tensor in batch) for batch in batches)


def _load_here(dataset: "_KeyedDataset", sampler: Sampler[list[Key]], device: torch.device) -> Iterator[Batch]:
    for keys in sampler:
        batch = stack_samples(dataset.__getitems__(keys))
        yield tuple(tensor.pin_memory() for tensor in batch) if device.type == "cuda" else batch


def _load_in_workers(
    dataset: "_KeyedDataset", sampler: Sampler[list[Key]], device: torch.device, workers: int
) -> Iterator[Batch]:
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=stack_samples,
        num_workers=workers,
        worker_init_fn=_ignore_stop_signals,
        pin_memory=device.type == "cuda",
        # The loader draws from a generator whenever it starts. Drawing from the global one would shift the
        # model's own randomness (dropout) in a resumed epoch.
        generator=torch.Generator(),
    )
    for batch in loader:
        yield tuple(batch)  # with pinning, the loader yields a list


def _ignore_stop_signals(_worker: int) -> None:
    """Ignore a signal sent to the whole process group: the trainer handles it, and ends its workers after saving."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class SliceSampler(Sampler[list[Key]]):
    """Yields one process's share of a whole source in order, for validation.

    Every process gets the same number of batches, so that they can agree on a stop between batches. The last batch may
    be short; a process without samples for it computes sample 0 as padding, because a sharded model needs every
    process in each forward pass. `count` leaves the padding out.
    """

    def __init__(self, *, samples: int, per_device: int, rank: int, world_size: int) -> None:
        self._mine = range(rank, samples, world_size)
        self._per_device = per_device
        self._batches = -(-samples // (per_device * world_size))

    def __len__(self) -> int:
        """Count the batches, the same on every process."""
        return self._batches

    def __iter__(self) -> Iterator[list[Key]]:
        """Iterate over the batches in order; augmentation keys are those of epoch 0."""
        for number in range(self._batches):
            yield [(0, index) for index in self._share(number) or (0,)]

    def count(self, number: int) -> int:
        """Count the samples of a batch without padding."""
        return len(self._share(number))

    def _share(self, number: int) -> range:
        return self._mine[number * self._per_device : (number + 1) * self._per_device]


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


def stack_samples(samples: list[Batch]) -> Batch:
    """Stack samples into a batch."""
    return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))
