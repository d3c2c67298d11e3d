"""Data sets of Hugging Face's `datasets`, in memory or streamed, and anything that works like them.

`datasets` isn't imported unless a data set of its own comes in.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from torch.utils.data._utils import worker as torch_worker

from trainer.base.sources import Sample
from trainer.data.seeded import SampleRng

Transform = Callable[[Any, np.random.Generator], Sample]

_WINDOW_STREAM = 4


class Indexed(Protocol):
    """Examples by number: `datasets.Dataset`, a list, a torch dataset."""

    def __len__(self) -> int:
        """Count the examples."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return an example."""
        ...


class HubDataset:
    """A data set with examples by number as a source; `transform(example, rng)` makes a sample of an example."""

    def __init__(self, dataset: Indexed, transform: Transform | None = None) -> None:
        self._dataset = dataset
        self._transform = transform

    def __len__(self) -> int:
        """Count the examples."""
        return len(self._dataset)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Return one sample."""
        example = self._dataset[index]
        return self._transform(example, rng) if self._transform else example


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    epoch: int
    rank: int
    world_size: int
    seed: int


class HubStream:
    """A streamed data set as a source that resumes at the sample: `datasets.IterableDataset`, or any iterable.

    Each process gets shards of its own (`split_dataset_by_node`, or the data set's `shard(num_shards, index)`); without
    shards each reads all examples and takes its turn. The position is the data set's `state_dict`. It is only a number,
    and a resume reads and drops as many examples, if the data set has none, or has a shuffle buffer (`shuffle`), whose
    content a state doesn't have: let `window` shuffle instead.
    """

    def __init__(
        self, dataset: Iterable[Any], *, samples: int, transform: Transform | None = None, window: int = 1
    ) -> None:
        """Make a source.

        Args:
            dataset: can be iterated over again and again.
            samples: of one epoch, over all processes; after it the data set starts anew, with `set_epoch` if it has it.
            transform: makes a sample of an example; all of its randomness comes from its generator.
            window: as many examples at a time are shuffled; 1: none.
        """
        self._dataset = dataset
        self._samples = samples
        self._transform = transform
        self._window = window

    def __len__(self) -> int:
        """Return the samples of one epoch."""
        return self._samples

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> "HubShare":
        """Open one process's share of an epoch."""
        dataset = _take_share(self._dataset, rank, world_size)
        set_epoch = getattr(dataset, "set_epoch", None)
        if set_epoch:
            set_epoch(epoch)
        share = _Share(epoch=epoch, rank=rank, world_size=world_size, seed=seed)
        return HubShare(dataset, share, self._transform, self._window)


class HubShare:
    """One process's share: windows of examples, each in an order of its own."""

    def __init__(self, dataset: Any, share: _Share, transform: Transform | None, window: int) -> None:
        self._dataset = dataset
        self._share = share
        self._transform = transform
        self._window = window
        self._rng = SampleRng(share.seed)
        self._has_position = _has_position(dataset)
        self._before = 0  # examples in the windows before this one
        self._size = self._taken = 0  # of this window
        self._position: Any = None  # at the beginning of this window

    def __iter__(self) -> Iterator[Sample]:
        """Iterate over the samples that are left."""
        examples = iter(self._dataset)
        if not self._has_position:
            examples = islice(examples, self._before, None)
        while chunk := self._read_window(examples):
            self._size = len(chunk)
            order = self._shuffle(len(chunk))
            for place in order[self._taken :]:
                self._taken += 1
                yield self._finish(chunk[place])
            self._begin_window()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last sample: that of its window, and how many of it are done."""
        if self._size and self._taken == self._size:
            self._begin_window()
        return {"before": self._before, "taken": self._taken, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self._before, self._taken, self._position = state["before"], state["taken"], state["position"]
        if self._position is not None:
            self._dataset.load_state_dict(self._position)

    def _read_window(self, examples: Iterator[Any]) -> list[Any]:
        with _out_of_worker():
            return list(islice(examples, self._window))

    def _begin_window(self) -> None:
        if not self._size:
            return
        self._before += self._size
        self._size = self._taken = 0
        self._position = self._dataset.state_dict() if self._has_position else None

    def _shuffle(self, count: int) -> list[int]:
        if self._window <= 1:
            return list(range(count))
        share = self._share
        key = (_WINDOW_STREAM, share.seed, share.epoch, share.rank, self._before)
        order: list[int] = np.random.default_rng(key).permutation(count).tolist()
        return order

    def _finish(self, example: Any) -> Sample:
        if self._transform is None:
            return example
        number = (self._before + self._taken) * self._share.world_size + self._share.rank
        return self._transform(example, self._rng.at(self._share.epoch, number))


class _Turns:
    """Every n-th example, for data sets without shards."""

    def __init__(self, dataset: Iterable[Any], rank: int, world_size: int) -> None:
        self._dataset = dataset
        self._rank = rank
        self._world_size = world_size

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._dataset), self._rank, None, self._world_size)


@contextmanager
def _out_of_worker() -> Iterator[None]:
    """Read as outside of a worker process: `datasets` shards anew in one, and shuffles differently (5.2)."""
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        yield
    finally:
        torch_worker._worker_info = info


def _take_share(dataset: Any, rank: int, world_size: int) -> Any:
    if type(dataset).__module__.partition(".")[0] == "datasets":
        from datasets.distributed import split_dataset_by_node  # noqa: PLC0415 - an optional package

        return split_dataset_by_node(dataset, rank=rank, world_size=world_size)
    if world_size == 1:
        return copy.copy(dataset)  # a position is its own
    if hasattr(dataset, "shard"):
        return dataset.shard(num_shards=world_size, index=rank)
    return _Turns(dataset, rank, world_size)


def _has_position(dataset: Any) -> bool:
    """Whether a data set's own state is exact."""
    if not hasattr(dataset, "state_dict") or not hasattr(dataset, "load_state_dict"):
        return False
    part = getattr(dataset, "_ex_iterable", None)
    while part is not None:
        if "BufferShuffled" in type(part).__name__:
            return False
        part = getattr(part, "ex_iterable", None)
    return True
