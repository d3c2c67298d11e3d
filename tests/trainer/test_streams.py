"""Streams: resumed at the sample, restarted when they end early, and read by one worker process at most."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.base.errors import BadRequestError, TrainerError
from trainer.data.loader import BatchLoader

CPU = torch.device("cpu")


class Counted:
    """One share: every `world_size`-th number, with the epoch's hundreds."""

    def __init__(self, numbers: range, epoch: int) -> None:
        self._numbers = numbers
        self._epoch = epoch
        self._done = 0

    def __iter__(self) -> Iterator[int]:
        for number in self._numbers[self._done :]:
            self._done += 1
            yield 100 * self._epoch + number

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._done = state["done"]


class Numbers:
    """A stream of numbers, shared in turns; `held` of them exist, an epoch is 20."""

    def __init__(self, held: int = 20) -> None:
        self._held = held
        self.opened: list[int] = []

    def __len__(self) -> int:
        return 20

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> Counted:  # noqa: ARG002
        self.opened.append(epoch)
        return Counted(range(rank, self._held, world_size), epoch)


def make_loader(source: Numbers, *, rank: int = 0, world_size: int = 1, workers: int = 0) -> BatchLoader:
    return BatchLoader(source, seed=1, device=CPU, rank=rank, world_size=world_size, workers=workers)


def read(loader: BatchLoader, *, epoch: int = 0, batch_size: int = 4, first_step: int = 0) -> list[list[int]]:
    batches = loader.batches(epoch=epoch, batch_size=batch_size, first_step=first_step)
    return [batch.tolist() for batch in batches]


@settings(max_examples=25)
@given(
    step=st.integers(0, 5), ranks=st.sampled_from([1, 2]), held=st.sampled_from([7, 20, 33]), epoch=st.integers(0, 1)
)
def test_a_stream_resumes_at_the_sample_after_the_last_batch(step: int, ranks: int, held: int, epoch: int) -> None:
    """A new loader with the saved position yields the rest of the epoch, on each rank; without one it skips there."""
    for rank in range(ranks):
        whole = read(make_loader(Numbers(held), rank=rank, world_size=ranks), epoch=epoch)
        assert len(whole) == 5
        first = make_loader(Numbers(held), rank=rank, world_size=ranks)
        batches = first.batches(epoch=epoch, batch_size=4)
        assert [next(batches).tolist() for _ in range(step)] == whole[:step]
        for state in (first.state(), {}):
            resumed = make_loader(Numbers(held), rank=rank, world_size=ranks)
            assert resumed.load_state(state) is None
            assert read(resumed, epoch=epoch, first_step=step) == whole[step:]


def test_every_sample_comes_once_over_all_ranks() -> None:
    """The shares of an epoch are disjoint and complete."""
    shares = [read(make_loader(Numbers(), rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(number for share in shares for batch in share for number in batch) == list(range(20))


def test_a_worker_reads_ahead_and_changes_nothing() -> None:
    """With three workers one process reads, over several epochs; the position is that of the batch that was yielded."""
    whole = [read(make_loader(Numbers()), epoch=epoch) for epoch in range(2)]
    loader = make_loader(Numbers(), workers=3)
    batches = loader.batches(epoch=0, batch_size=4)
    assert [next(batches).tolist(), next(batches).tolist()] == whole[0][:2]
    state = loader.state()
    assert state["position"] == {"done": 8}
    loader.load_state(state)
    assert read(loader, epoch=0, first_step=2) == whole[0][2:]
    assert read(loader, epoch=1) == whole[1]
    loader.close()


def test_a_stream_that_ends_early_goes_on_with_its_next_pass() -> None:
    """Every rank has the same number of batches; the next pass is the next epoch's share."""
    assert read(make_loader(Numbers(held=7))) == [
        [0, 1, 2, 3],
        [4, 5, 6, 100],
        [101, 102, 103, 104],
        [105, 106, 200, 201],
        [202, 203, 204, 205],
    ]


def test_a_resume_doesnt_read_what_came_before() -> None:
    """A position in the third pass opens that pass only."""
    first, source = make_loader(Numbers(held=7)), Numbers(held=7)
    batches = first.batches(epoch=0, batch_size=4)
    for _ in range(4):
        next(batches)
    resumed = make_loader(source)
    resumed.load_state(first.state())
    assert read(resumed, first_step=4) == [[202, 203, 204, 205]]
    assert source.opened == [2]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_empty_share_is_an_error(workers: int) -> None:
    """A process without samples fails with the reason, instead of waiting for ever."""
    loader = make_loader(Numbers(held=1), rank=1, world_size=2, workers=workers)
    with pytest.raises(TrainerError, match="process 2 of 2 has no samples"):
        next(loader.batches(epoch=0, batch_size=4))
    loader.close()


def test_another_number_of_processes_skips_as_many_samples_and_says_so() -> None:
    """Shares in turns go on exactly; the user is told that a stream with other shares may repeat a few."""
    first = make_loader(Numbers(), rank=1, world_size=2)
    batches = first.batches(epoch=0, batch_size=4)
    next(batches)
    next(batches)
    alone = make_loader(Numbers())
    note = alone.load_state(first.state())
    assert note is not None
    assert "read by 2 processes, now 1" in note
    assert read(alone, first_step=2) == read(make_loader(Numbers()))[2:]


def test_another_batch_size_goes_on_at_the_same_sample() -> None:
    """The position counts samples, not steps."""
    first = make_loader(Numbers())
    batches = first.batches(epoch=0, batch_size=4)
    next(batches)
    resumed = make_loader(Numbers())
    assert resumed.load_state(first.state()) is None
    assert read(resumed, batch_size=2, first_step=2)[0] == [4, 5]


def test_a_foreign_position_and_a_stream_for_validation_are_refused() -> None:
    """The state must be one of ours, and validation needs numbered samples."""
    loader = make_loader(Numbers())
    with pytest.raises(BadRequestError, match="position"):
        loader.load_state({"batches": 3})
    with pytest.raises(BadRequestError, match="validation data"):
        next(loader.shares(per_device=2))


def test_numbered_samples_have_no_position() -> None:
    """Their order is computed, so there is nothing to save."""

    class Source:
        def __len__(self) -> int:
            return 8

        def sample(self, index: int, rng: object) -> int:  # noqa: ARG002
            return index

    loader = BatchLoader(Source(), seed=1, device=CPU)
    next(loader.batches(epoch=0, batch_size=4))
    assert loader.state() == {}
    assert loader.load_state({}) is None
