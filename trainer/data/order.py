"""Which samples a process's batches have, and in which order: a pure function of (seed, epoch, step)."""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

Key = tuple[int, int]  # epoch, index

_PERMUTATION_STREAM = 1


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
