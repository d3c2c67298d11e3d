"""Which samples a process's batches have, and in which order: a pure function of (seed, epoch, step).

A source that has `order(epoch, rng, batch_size)` chooses the order of an epoch itself: an array of indices, of which
each run of `batch_size` is a global batch. It has to return the same on every process, so it draws from `rng` only. An
index may come more than once, and another not at all (weighted sampling).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from trainer.base.errors import BadRequestError
from trainer.base.sources import SampleSource

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
        source: SampleSource | None = None,
    ) -> None:
        self._per_device = batch_size // world_size
        self._batch_size = batch_size
        self._offset = rank * self._per_device
        self._epoch = epoch
        self._first_step = first_step
        self._steps = samples // batch_size
        rng = np.random.default_rng((_PERMUTATION_STREAM, seed, epoch))
        if source is None:
            self._order: NDArray[np.int64] = rng.permutation(samples)
        else:
            self._order = order_source(source, epoch, rng, batch_size)
            if len(self._order) < self._steps * batch_size:
                raise _refuse(source, f"it has {len(self._order)} indices for {self._steps} batches of {batch_size}")

    def __len__(self) -> int:
        """Count the batches that are left."""
        return max(0, self._steps - self._first_step)

    def __iter__(self) -> Iterator[list[Key]]:
        """Iterate over the batches that are left, in order."""
        for step in range(self._first_step, self._steps):
            start = step * self._batch_size + self._offset
            yield [(self._epoch, index) for index in self._order[start : start + self._per_device].tolist()]


def order_source(source: SampleSource, epoch: int, rng: np.random.Generator, batch_size: int) -> NDArray[np.int64]:
    """Return a source's own order of an epoch, or a permutation if it has none.

    Raises:
        BadRequestError: its order isn't an array of indices of its samples.
    """
    samples = len(source)
    choose = getattr(source, "order", None)
    if choose is None:
        return rng.permutation(samples)
    order = np.asarray(choose(epoch, rng, batch_size))
    if order.ndim != 1 or order.dtype.kind not in "iu":
        raise _refuse(source, f"it is an array of {order.dtype} with {order.ndim} dimensions")
    if len(order) and not 0 <= order.min() <= order.max() < samples:
        raise _refuse(source, f"it has indices from {order.min()} to {order.max()} for {samples} samples")
    return order.astype(np.int64, copy=False)


def order_by_shard(sizes: Sequence[int], rng: np.random.Generator, *, mixed: int = 8) -> NDArray[np.int64]:
    """Order samples that lie in shards one after another: `mixed` random shards at a time, their samples shuffled.

    Args:
        sizes: samples of each shard.
        rng: what to draw from.
        mixed: how many shards are read at the same time.
    """
    begins = np.cumsum([0, *sizes])
    shards = rng.permutation(len(sizes))
    windows = [shards[begin : begin + mixed] for begin in range(0, len(shards), mixed)]
    parts = [np.concatenate([np.arange(begins[shard], begins[shard + 1]) for shard in window]) for window in windows]
    return np.concatenate([rng.permutation(part) for part in parts]) if parts else np.empty(0, np.int64)


def order_by_length(
    lengths: ArrayLike, rng: np.random.Generator, *, batch_size: int, window: int = 50
) -> NDArray[np.int64]:
    """Order samples so that those of a batch have similar lengths, and the batches no order of their own.

    Args:
        lengths: of each sample.
        rng: what to draw from.
        batch_size: samples of a global batch.
        window: samples are sorted within this many batches' worth of a permutation: more pad less, and mix less.
    """
    lengths = np.asarray(lengths)
    order = rng.permutation(len(lengths))
    step = batch_size * window
    windows = [order[begin : begin + step] for begin in range(0, len(order), step)]
    ordered = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in windows] or [order])
    whole = len(ordered) // batch_size * batch_size
    batches = rng.permutation(ordered[:whole].reshape(-1, batch_size))
    return np.concatenate([batches.reshape(-1), ordered[whole:]])


def _refuse(source: object, why: str) -> BadRequestError:
    return BadRequestError(
        f"the order of {type(source).__name__} can't be used",
        why=why,
        fix="let its order(epoch, rng, batch_size) return a one-dimensional array of indices, enough for all batches",
    )


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
