"""Samples by key: which ones make a batch, and their randomness, follow from (seed, epoch, index) alone.

So a run that was stopped inside an epoch goes on with the very same batches, augmentation included,
without any loader state to save.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

# Shape legend: B batch; the rest of a tensor's shape belongs to the recipe.
Batch = tuple[torch.Tensor, ...]
Key = tuple[int, int]  # epoch, index

_PERMUTATION_STREAM = 1
_SAMPLE_STREAM = 2


class SampleSource(Protocol):
    """What a recipe gives as data: numbered samples, each a tuple of tensors without batch dimension."""

    def __len__(self) -> int:
        """Count the samples."""
        ...

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        """Make one sample; all of its randomness comes from `rng`."""
        ...


class KeyedSampler(Sampler[list[Key]]):
    """Yield one process's batches of one epoch, from any step on.

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
        """Go through the batches that are left, in order."""
        for step in range(self._first_step, self._steps):
            start = step * self._batch_size + self._offset
            yield [(self._epoch, int(index)) for index in self._order[start : start + self._per_device]]


def sample_rng(*, seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make the random generator that belongs to one sample of one epoch."""
    return np.random.default_rng((_SAMPLE_STREAM, seed, epoch, index))


def load_batches(
    source: SampleSource, sampler: Sampler[list[Key]], *, seed: int, device: torch.device
) -> Iterator[Batch]:
    """Yield the sampler's batches on the device."""
    loader = DataLoader(
        _KeyedDataset(source, seed),
        batch_sampler=sampler,
        collate_fn=_stack,
        pin_memory=device.type == "cuda",
        # The loader draws from a generator at each start. From the global one, that would shift the
        # model's own randomness (dropout) in a resumed epoch.
        generator=torch.Generator(),
    )
    for batch in loader:
        yield tuple(tensor.to(device, non_blocking=True) for tensor in batch)


class SliceSampler(Sampler[list[Key]]):
    """Yield one process's share of a whole source in order, cut into an equal number of batches.

    Processes get the same number of batches, the last of which may be short or empty, so that they
    can agree on a stop between batches.
    """

    def __init__(self, *, samples: int, per_device: int, rank: int, world_size: int) -> None:
        self._mine = range(rank, samples, world_size)
        self._per_device = per_device
        self._batches = -(-samples // (per_device * world_size))

    def __len__(self) -> int:
        """Count the batches, the same on every process."""
        return self._batches

    def __iter__(self) -> Iterator[list[Key]]:
        """Go through the batches in order; augmentation keys are those of epoch 0."""
        for start in range(0, self._batches * self._per_device, self._per_device):
            yield [(0, index) for index in self._mine[start : start + self._per_device]]


class _KeyedDataset(Dataset[Batch]):
    def __init__(self, source: SampleSource, seed: int) -> None:
        self._source = source
        self._seed = seed

    def __getitem__(self, key: Key) -> Batch:
        epoch, index = key
        return self._source.sample(index, sample_rng(seed=self._seed, epoch=epoch, index=index))


def _stack(samples: list[Batch]) -> Batch:
    return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))
