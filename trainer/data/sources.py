"""Ready-made sources: arrays in memory, subsets, and sources whose samples go through a transform."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from trainer.base.errors import BadRequestError, first_line
from trainer.base.sources import Sample, SampleSource
from trainer.data.order import order_by_length, order_source
from trainer.data.seeded import seeded

Transform = Callable[[Any, np.random.Generator], Sample]

_SPLIT_STREAM = 3
_OWN_SEEDS = ("set_random_seed", "set_random_state")  # albumentations, monai


class ArraySource:
    """Samples that lie in arrays or tensors: a tuple with the entry of each, or the entry itself if there is one array.

    `transform(sample, rng)` makes a sample's final form; all of its randomness comes from `rng`.
    """

    def __init__(self, *arrays: NDArray[Any] | torch.Tensor, transform: Transform | None = None) -> None:
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise BadRequestError(
                "these arrays are not one set of samples",
                why=f"they have {' and '.join(map(str, sorted(lengths))) or 'no'} entries",
                fix="give at least one array, all with an entry per sample",
            )
        self._arrays = [_as_tensor(array) for array in arrays]
        self._transform = transform

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._arrays[0])

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Return the entries of one sample, transformed."""
        entries = tuple([array[index] for array in self._arrays])
        sample = entries if len(entries) > 1 else entries[0]
        return self._transform(sample, rng) if self._transform else sample


def _as_tensor(array: NDArray[Any] | torch.Tensor) -> "torch.Tensor | _ReadOnly":
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        return _ReadOnly(array)
    try:
        return torch.as_tensor(array)
    except (TypeError, ValueError) as err:
        raise BadRequestError(
            "an array of samples can't become a tensor",
            why=first_line(err),
            fix="give numbers; for names of files, give torch.arange(count), and open the file in the transform",
        ) from err


class _ReadOnly:
    """Tensors of an array that can't be written (a memory map): torch shares memory with writable ones only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self._array[index]))


class Transformed:
    """A source whose samples go through a transform that draws from the global generators of Python, NumPy or torch.

    So torchvision's, albumentations' and monai's transforms work as they are: see `trainer.data.seeded.seeded`. One
    that has generators of its own (`set_random_seed` or `set_random_state`) is seeded for each sample as well.
    """

    def __init__(self, source: SampleSource, transform: Callable[[Any], Sample]) -> None:
        self._source = source
        self._transform = transform
        methods = (getattr(transform, name, None) for name in _OWN_SEEDS)
        self._seed_own = next((method for method in methods if callable(method)), None)

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._source)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Return the transformed sample."""
        sample = self._source.sample(index, rng)
        with seeded(rng):
            if self._seed_own:
                self._seed_own(int(rng.integers(2**31)))
            return self._transform(sample)

    def order(self, epoch: int, rng: np.random.Generator, batch_size: int) -> NDArray[np.int64]:
        """Return the source's order."""
        return order_source(self._source, epoch, rng, batch_size)


class Subset:
    """Some samples of a source, numbered anew."""

    def __init__(self, source: SampleSource, indices: ArrayLike) -> None:
        self._source = source
        self._indices = np.asarray(indices, dtype=np.int64)

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._indices)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Return one sample."""
        return self._source.sample(int(self._indices[index]), rng)

    def order(self, epoch: int, rng: np.random.Generator, batch_size: int) -> NDArray[np.int64]:
        """Return these samples in the source's order, if it has one: a shard's samples stay together."""
        if getattr(self._source, "order", None) is None:
            return rng.permutation(len(self))
        new_number = np.full(len(self._source), -1)
        new_number[self._indices] = np.arange(len(self))
        numbers = new_number[order_source(self._source, epoch, rng, batch_size)]
        return numbers[numbers >= 0]


class BucketedByLength:
    """A source whose batches have samples of similar length, so that little is padded; see `order_by_length`."""

    def __init__(self, source: SampleSource, lengths: ArrayLike, *, window: int = 50) -> None:
        self._source = source
        self._lengths = np.asarray(lengths)
        self._window = window
        if self._lengths.shape != (len(source),):
            raise BadRequestError(
                "the samples can't be ordered by length",
                why=f"there are {len(source)} samples, and lengths of shape {self._lengths.shape}",
                fix="give one length per sample",
            )

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._source)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Return one sample of the source."""
        return self._source.sample(index, rng)

    def order(self, _epoch: int, rng: np.random.Generator, batch_size: int) -> NDArray[np.int64]:
        """Return the order of an epoch."""
        return order_by_length(self._lengths, rng, batch_size=batch_size, window=self._window)


def split(source: SampleSource, held_out: float, *, seed: int = 0) -> tuple[Subset, Subset]:
    """Split a source at random into (training, validation); the same seed gives the same split.

    Args:
        source: what to split.
        held_out: samples for validation: their number, or their share below 1.
        seed: of the split, which is part of the task: leave it when the run's seed changes.

    Raises:
        BadRequestError: one side would be empty.
    """
    count = len(source)
    validation = int(held_out) if held_out >= 1 else round(held_out * count)
    if not 0 < validation < count:
        raise BadRequestError(
            f"{held_out} of {count} samples can't be held out for validation",
            why="training and validation need at least one sample each",
            fix=f"hold out a share between 0 and 1, or 1 to {count - 1} samples",
        )
    order = np.random.default_rng((_SPLIT_STREAM, seed)).permutation(count)
    return Subset(source, np.sort(order[validation:])), Subset(source, np.sort(order[:validation]))
