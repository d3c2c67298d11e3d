"""What a recipe's data are to the trainer: numbered samples, or a stream of them; and what a batch is.

A sample is a tensor, an array, a number, or any nesting of tuples (named ones too), dicts and dataclasses of them. A
batch has the same structure. Its tensors have the samples along their first dimension, its lists one entry per sample
(ragged data). The recipe's `collate` may make any other batch, as long as it keeps these two rules where micro-batches
are split.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

Sample = Any
Batch = Any


@runtime_checkable
class SampleSource(Protocol):
    """Numbered samples. A source may also have `order(epoch, rng, batch_size)`: see `trainer.data.order`."""

    def __len__(self) -> int:
        """Count the samples."""
        ...

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Make one sample; all of its randomness comes from `rng`."""
        ...


class SampleStream(Protocol):
    """One process's share of an epoch of a stream. Its samples are pickled if a worker process reads them."""

    def __iter__(self) -> Iterator[Sample]:
        """Iterate over the samples that are left."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last sample, as plain data that JSON can hold."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        ...


@runtime_checkable
class StreamSource(Protocol):
    """Samples that can only be read one after another."""

    def __len__(self) -> int:
        """Return the samples of one epoch over all processes, which may be a number that the recipe chooses."""
        ...

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> SampleStream:
        """Open one process's share of an epoch, at its beginning; shares don't overlap.

        It always yields the same samples for the same arguments. A share that ends before the epoch does is followed by
        the same process's share of the next epoch.
        """
        ...
