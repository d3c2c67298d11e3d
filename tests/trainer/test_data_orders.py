"""Orders that a source chooses, and ready-made sources."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch, SampleSource
from trainer.data.loader import BatchLoader
from trainer.data.order import order_by_length, order_by_shard
from trainer.data.seeded import sample_rng
from trainer.data.sources import ArraySource, BucketedByLength, Subset, Transformed, split

CPU = torch.device("cpu")
SHARDS = (5, 1, 9, 4, 7, 2)
COUNT = sum(SHARDS)
LENGTHS = np.random.default_rng(0).integers(1, 100, COUNT)


class Sharded(ArraySource):
    """Numbers in shards, read shard by shard."""

    def __init__(self) -> None:
        super().__init__(torch.arange(COUNT))

    def order(self, _epoch: int, rng: np.random.Generator, _batch_size: int) -> NDArray[np.int64]:
        return order_by_shard(SHARDS, rng, mixed=2)


class Ordered(ArraySource):
    """Numbers in an order that the test gives."""

    def __init__(self, order: ArrayLike) -> None:
        super().__init__(torch.arange(10))
        self.given = order

    def order(self, _epoch: int, _rng: np.random.Generator, _batch_size: int) -> ArrayLike:
        return self.given


SOURCES: dict[str, Callable[[], SampleSource]] = {
    "permutation": lambda: ArraySource(torch.arange(COUNT)),
    "shards": Sharded,
    "lengths": lambda: BucketedByLength(ArraySource(torch.arange(COUNT)), LENGTHS, window=2),
    "transformed shards": lambda: Transformed(Sharded(), lambda number: number),
    "subset of shards": lambda: Subset(Sharded(), np.arange(COUNT)[::-1]),
}


def read(source: SampleSource, *, batch_size: int, epoch: int = 0, first_step: int = 0, ranks: int = 1) -> list[Batch]:
    """Read an epoch's global batches: all ranks' shares put together."""
    shares = [
        list(
            BatchLoader(source, seed=1, device=CPU, rank=rank, world_size=ranks).batches(
                epoch=epoch, batch_size=batch_size, first_step=first_step
            )
        )
        for rank in range(ranks)
    ]
    return [torch.cat(parts).tolist() for parts in zip(*shares, strict=True)]


@settings(max_examples=40)
@given(
    name=st.sampled_from(list(SOURCES)),
    per_rank=st.integers(1, 4),
    ranks=st.sampled_from([1, 2, 3]),
    epoch=st.integers(0, 2),
    first_step=st.integers(0, 30),
)
def test_each_order_has_every_sample_once_over_all_ranks_and_resumes_at_any_step(
    name: str, per_rank: int, ranks: int, epoch: int, first_step: int
) -> None:
    """Only the incomplete last batch is missing, ranks change nothing, and a resumed epoch is the rest of the whole."""
    source, batch_size = SOURCES[name](), per_rank * ranks
    whole = read(source, batch_size=batch_size, epoch=epoch)
    seen = [number for batch in whole for number in batch]
    assert len(whole) == COUNT // batch_size
    assert len(set(seen)) == len(seen)
    assert read(source, batch_size=batch_size, epoch=epoch, ranks=ranks) == whole
    assert read(source, batch_size=batch_size, epoch=epoch, first_step=first_step, ranks=ranks) == whole[first_step:]


@pytest.mark.parametrize("name", list(SOURCES))
def test_each_order_is_another_one_in_another_epoch(name: str) -> None:
    """Two epochs have the same samples in another order."""
    first, second = (read(SOURCES[name](), batch_size=1, epoch=epoch) for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)


def test_shards_are_read_a_few_at_a_time() -> None:
    """The samples of two shards are mixed, and no other shard comes in between."""
    order = order_by_shard(SHARDS, np.random.default_rng(0), mixed=2)
    owner = np.repeat(np.arange(len(SHARDS)), SHARDS)[order].tolist()
    ends = {shard: len(owner) - owner[::-1].index(shard) for shard in owner}
    open_at_once = [sum(owner.index(shard) <= place < ends[shard] for shard in ends) for place in range(len(owner))]
    assert max(open_at_once) == 2
    changes = sum(before != after for before, after in pairwise(owner))
    assert changes > len(SHARDS)  # mixed, not one after another


def test_batches_by_length_need_less_padding_and_are_shuffled() -> None:
    """The lengths within a batch differ by little, and long batches don't all come last."""
    lengths = np.random.default_rng(0).integers(1, 1000, 800)
    batches = lengths[order_by_length(lengths, np.random.default_rng(0), batch_size=8)].reshape(-1, 8)
    padded = (batches.max(axis=1) * 8).sum() / lengths.sum()
    shuffled = lengths.reshape(-1, 8)
    assert padded < 1.05 < (shuffled.max(axis=1) * 8).sum() / lengths.sum()
    assert abs(np.corrcoef(batches.mean(axis=1), np.arange(100))[0, 1]) < 0.5


def test_an_order_may_repeat_samples() -> None:
    """Weighted sampling: an index may come twice."""
    assert read(Ordered([3] * 10), batch_size=5) == [[3] * 5] * 2


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (list(range(9)), "9 indices for 2 batches of 5"),
        ([*range(9), 10], "indices from 0 to 10 for 10 samples"),
        ([-1, *range(9)], "indices from -1 to 8"),
        ([[1, 2]] * 10, "2 dimensions"),
        (np.linspace(0, 1, 10), "float64"),
    ],
)
def test_an_order_that_cant_be_used_is_refused(order: ArrayLike, text: str) -> None:
    """The message says what is wrong with it, and whose it is."""
    with pytest.raises(BadRequestError, match="order of Ordered") as raised:
        read(Ordered(order), batch_size=5)
    assert text in raised.value.why


def test_arrays_are_a_source_with_a_transform_of_the_samples_own_randomness() -> None:
    """A sample is a tuple of the entries, and its transform draws from its generator."""
    source = ArraySource(np.arange(6.0), torch.arange(6), transform=lambda pair, rng: (*pair, rng.random()))
    x, y, drawn = source.sample(4, sample_rng(seed=1, epoch=0, index=4))
    assert (float(x), int(y), drawn) == (4.0, 4, sample_rng(seed=1, epoch=0, index=4).random())
    assert len(source) == 6


def test_a_memory_map_is_a_source_without_being_read_whole(tmp_path: Path) -> None:
    """An array that can't be written gives tensors all the same, without torch's warning."""
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(4, 3))
    source = ArraySource(np.load(tmp_path / "a.npy", mmap_mode="r"))
    sample = source.sample(2, sample_rng(seed=1, epoch=0, index=2))
    assert torch.equal(sample, torch.tensor([6.0, 7.0, 8.0], dtype=torch.float64))


def test_arrays_of_different_lengths_are_refused() -> None:
    """The lengths are named; no array at all is refused as well."""
    with pytest.raises(BadRequestError, match="one set") as raised:
        ArraySource(np.zeros(3), np.zeros(4))
    assert "3 and 4" in raised.value.why
    with pytest.raises(BadRequestError, match="one set"):
        ArraySource()


@given(count=st.integers(2, 40), held_out=st.one_of(st.integers(1, 39), st.floats(0.05, 0.95)))
def test_a_split_has_every_sample_on_one_side(count: int, held_out: float) -> None:
    """Training and validation share no sample and leave none out; the same seed splits the same way."""
    rng = np.random.default_rng(0)
    source = ArraySource(torch.arange(count))
    try:
        sides = [[int(side.sample(i, rng)) for i in range(len(side))] for side in split(source, held_out, seed=3)]
    except BadRequestError:
        assert held_out >= count or round(held_out * count) in (0, count)
        return
    assert sorted(sides[0] + sides[1]) == list(range(count))
    assert len(sides[1]) == (held_out if held_out >= 1 else round(held_out * count))
    again = split(source, held_out, seed=3)[1]
    assert [int(again.sample(i, rng)) for i in range(len(again))] == sides[1]


def test_array_that_can_not_become_a_tensor_is_refused_with_a_way_out() -> None:
    """Names of files, for example."""
    with pytest.raises(BadRequestError, match="names of files"):
        ArraySource(np.array(["a.png", "b.png"]))
