"""A recipe's collate may draw from global generators, as MixUp does: its draws belong to the step."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from trainer.base.sources import Batch, Sample, SampleSource, StreamSource
from trainer.data.loader import BatchLoader
from trainer.data.sources import ArraySource

CPU = torch.device("cpu")


class Share:
    """A stream of its place's numbers."""

    def __init__(self, rank: int) -> None:
        self._next = rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self._next < 12:
            self._next += 1
            yield torch.tensor(self._next)

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Stream:
    def __len__(self) -> int:
        return 12

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> Share:  # noqa: ARG002 - a stream's
        return Share(rank)


SOURCES = [ArraySource(torch.arange(12)), Stream()]


def draw(_: list[Sample]) -> Batch:
    return random.random(), np.random.randn(), torch.rand(())


def read(source: SampleSource | StreamSource, *, first_step: int = 0, epoch: int = 0, **options: int) -> list[float]:
    loader = BatchLoader(source, device=CPU, collate=draw, **{"seed": 3, "world_size": 2, **options})
    batches = list(loader.batches(epoch=epoch, batch_size=4, first_step=first_step))
    loader.close()
    return [float(part) for batch in batches for part in batch]


@pytest.mark.parametrize("source", SOURCES)
def test_collate_draws_the_same_for_any_workers_and_on_resume(source: SampleSource | StreamSource) -> None:
    """Whatever the global generators were before; each step, rank, epoch and seed has draws of its own."""
    whole = read(source)
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert read(source, workers=2) == read(source) == whole
    assert read(source, first_step=1) == whole[3:]
    others = [read(source, rank=1), read(source, epoch=1), read(source, seed=4)]
    every = [value for values in (whole, *others) for value in values]
    assert len(set(every)) == len(every) == 36


@pytest.mark.parametrize("source", SOURCES)
def test_collate_does_not_shift_the_models_own_randomness(source: SampleSource | StreamSource) -> None:
    """Dropout draws what it would draw without it."""
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    read(source)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), before[2])
