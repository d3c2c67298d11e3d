"""Transforms of other libraries draw from global generators: from the sample's own randomness all the same."""

import random

import numpy as np
import pytest
import torch

from trainer.base.sources import Batch
from trainer.data.loader import BatchLoader
from trainer.data.seeded import sample_rng, seeded
from trainer.data.sources import ArraySource, Transformed

CPU = torch.device("cpu")


def jitter(value: torch.Tensor) -> Batch:
    """Draw from all three global generators, as torchvision, albumentations and monai do together."""
    return value, random.random(), np.random.randn(), torch.rand(())


class OwnGenerator:
    """A transform with a generator of its own, seeded by a method of monai's name."""

    def __init__(self) -> None:
        self._random = np.random.RandomState()

    def set_random_state(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def __call__(self, value: torch.Tensor) -> Batch:
        return value, self._random.rand()


def read(transform: object, *, workers: int = 0, first_step: int = 0, epoch: int = 0) -> list[list[float]]:
    source = Transformed(ArraySource(torch.arange(12)), transform)  # type: ignore[arg-type]  # both above are callable
    loader = BatchLoader(source, seed=3, device=CPU, workers=workers)
    batches = list(loader.batches(epoch=epoch, batch_size=4, first_step=first_step))
    loader.close()
    return [[float(value) for part in batch for value in part] for batch in batches]


def draw_globally() -> list[float]:
    return [random.random(), float(np.random.randn()), float(torch.rand(()))]


@pytest.mark.parametrize("transform", [jitter, OwnGenerator()])
def test_foreign_transforms_give_the_same_samples_for_any_workers_and_on_resume(transform: object) -> None:
    """Two workers, a resumed epoch and a repeated one draw what one process draws; another epoch draws anew."""
    whole = read(transform)
    assert read(transform, workers=2) == whole
    assert read(transform, first_step=1) == whole[1:]
    assert read(transform, epoch=1) != whole


def test_samples_dont_shift_the_models_own_randomness() -> None:
    """Global generators go on after reading where they were, also in the middle of a pair of normal numbers."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before, expected = draw_globally(), draw_globally()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert draw_globally() == before
    read(jitter)
    with pytest.raises(KeyError), seeded(sample_rng(seed=1, epoch=0, index=0)):
        raise KeyError
    assert draw_globally() == expected


def test_seeded_draws_follow_the_samples_generator() -> None:
    """The same sample draws the same from all three, another sample something else."""

    def draw(index: int) -> list[float]:
        with seeded(sample_rng(seed=1, epoch=0, index=index)):
            return draw_globally()

    assert draw(1) == draw(1)
    assert all(one != other for one, other in zip(draw(1), draw(2), strict=True))


def test_generators_are_restored_when_a_sample_fails() -> None:
    """An error in the middle of a batch leaves the global generators where they were."""

    def fail(value: torch.Tensor) -> Batch:
        random.random()
        raise KeyError(int(value))

    before = random.getstate(), torch.get_rng_state()
    with pytest.raises(KeyError):
        read(fail)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
