"""Data sets of Hugging Face, and a stand-in with the same protocol where `datasets` isn't installed."""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from trainer.base.sources import Sample
from trainer.data.hub import HubDataset, HubStream
from trainer.data.loader import BatchLoader
from trainer.data.seeded import sample_rng

CPU = torch.device("cpu")
COUNT, SHARDS = 24, 4


class StandIn:
    """A stream like datasets.IterableDataset: shards, an epoch, and a state after the last example."""

    def __init__(self, shards: list[list[int]]) -> None:
        self._shards = shards
        self._epoch = self._done = 0

    def shard(self, num_shards: int, index: int) -> "StandIn":
        return StandIn(self._shards[index::num_shards])

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict[str, int]]:
        numbers = [number for shard in self._shards for number in shard]
        for number in numbers[self._done :]:
            self._done += 1
            yield {"x": number}
        self._done = 0

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._done = state["done"]


class Endless:
    """An iterable without shards or state."""

    def __iter__(self) -> Iterator[dict[str, int]]:
        return ({"x": number} for number in range(COUNT))


def make_stream(kind: str) -> Iterable[Any]:
    if kind == "stand-in":
        return StandIn([list(range(first, first + COUNT // SHARDS)) for first in range(0, COUNT, COUNT // SHARDS)])
    if kind == "iterable":
        return Endless()
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": list(range(COUNT))}).to_iterable_dataset(num_shards=SHARDS)
    shuffled = kind == "datasets with a shuffle buffer"
    return stream.shuffle(seed=3, buffer_size=5) if shuffled else stream  # type: ignore[no-any-return]  # untyped


KINDS = ["stand-in", "iterable", "datasets", "datasets with a shuffle buffer"]


def add_noise(example: dict[str, int], rng: np.random.Generator) -> Sample:
    return example["x"], rng.random()


def read(
    source: HubStream, *, epoch: int = 0, state: dict[str, Any] | None = None, rank: int = 0, ranks: int = 1,
    workers: int = 0,
) -> tuple[list[list[float]], list[dict[str, Any]]]:  # fmt: skip
    """Read an epoch from a state; return its batches, and the state after each."""
    loader = BatchLoader(source, seed=1, device=CPU, rank=rank, world_size=ranks, workers=workers)
    loader.load_state(copy.deepcopy(state or {}))
    done = state["samples"] // 4 if state else 0
    batches, states = [], []
    for numbers, noise in loader.batches(epoch=epoch, batch_size=4, first_step=done):
        batches.append([*numbers.tolist(), *noise.tolist()])
        states.append(loader.state())
    loader.close()
    return batches, states


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_resumes_at_every_step_with_the_same_samples_and_noise(kind: str, window: int) -> None:
    """From each batch's state the rest of the epoch follows, also where the data set itself could not go on exactly."""
    source = HubStream(make_stream(kind), samples=COUNT, transform=add_noise, window=window)
    whole, states = read(source)
    numbers = [number for batch in whole for number in batch[:4]]
    assert sorted(numbers) == list(range(COUNT))
    assert (numbers == sorted(numbers)) == (window == 1 and "buffer" not in kind)
    for step, state in enumerate(states, start=1):
        fresh = HubStream(make_stream(kind), samples=COUNT, transform=add_noise, window=window)
        assert read(fresh, state=state)[0] == whole[step:]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_share_a_stream_and_a_worker_changes_nothing(kind: str) -> None:
    """Every example comes once over two ranks; a worker process reads the same."""
    source = HubStream(make_stream(kind), samples=COUNT, transform=add_noise, window=3)
    shares = [read(source, rank=rank, ranks=2)[0] for rank in range(2)]
    assert sorted(number for share in shares for batch in share for number in batch[:2]) == list(range(COUNT))
    assert read(source, rank=1, ranks=2, workers=1)[0] == shares[1]


def test_epochs_have_another_order_of_a_window_and_another_noise() -> None:
    """The same examples, shuffled anew."""
    source = HubStream(make_stream("stand-in"), samples=COUNT, transform=add_noise, window=8)
    first, second = (read(source, epoch=epoch)[0] for epoch in (0, 1))
    assert first != second
    assert sorted(number for batch in first for number in batch[:4]) == sorted(
        number for batch in second for number in batch[:4]
    )


def test_a_data_set_by_number_is_a_source() -> None:
    """Its examples are samples as they are, or transformed with the sample's own randomness."""
    examples = [{"x": number} for number in range(5)]
    assert len(HubDataset(examples)) == 5
    assert HubDataset(examples).sample(3, sample_rng(seed=1, epoch=0, index=3)) == {"x": 3}
    expected = sample_rng(seed=1, epoch=0, index=3).random()
    assert HubDataset(examples, add_noise).sample(3, sample_rng(seed=1, epoch=0, index=3)) == (3, expected)
