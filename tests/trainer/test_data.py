"""Which samples come when, and with which randomness."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.base.sources import Batch
from trainer.data.loader import BatchLoader
from trainer.data.order import KeyedSampler, SliceSampler
from trainer.data.seeded import sample_rng


class NoisySource:
    """Samples that contain their index and their random draw."""

    def __len__(self) -> int:
        return 23

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        return torch.tensor(index), torch.tensor(rng.random())


def make_sampler(*, rank: int = 0, world_size: int = 1, epoch: int = 0, first_step: int = 0) -> KeyedSampler:
    return KeyedSampler(
        samples=23, batch_size=4, rank=rank, world_size=world_size, seed=5, epoch=epoch, first_step=first_step
    )


def test_epoch_resumed_in_the_middle_has_the_same_batches_and_randomness() -> None:
    """From step 2 on, indices and augmentation draws equal those of the whole epoch."""
    cpu = torch.device("cpu")
    loader = BatchLoader(NoisySource(), seed=5, device=cpu)
    whole = list(loader.batches(epoch=0, batch_size=4))
    rest = list(loader.batches(epoch=0, batch_size=4, first_step=2))
    assert len(whole) == 5
    for ours, theirs in zip(rest, whole[2:], strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_starting_an_epoch_leaves_the_models_randomness_alone() -> None:
    """Reading batches draws nothing from torch's global generator, which dropout uses."""
    before = torch.get_rng_state()
    list(BatchLoader(NoisySource(), seed=5, device=torch.device("cpu")).batches(epoch=0, batch_size=4))
    assert torch.equal(torch.get_rng_state(), before)


def test_epochs_differ_in_order_and_in_randomness() -> None:
    """Another epoch has another permutation, and another augmentation of the same sample."""
    assert list(make_sampler(epoch=0)) != [[(0, i) for _, i in keys] for keys in make_sampler(epoch=1)]
    draws = {sample_rng(seed=5, epoch=epoch, index=index).random() for epoch in range(9) for index in range(9)}
    assert len(draws) == 81


@given(world_size=st.sampled_from([1, 2, 4]))
def test_global_batches_do_not_depend_on_the_number_of_processes(world_size: int) -> None:
    """The shares of all ranks, put together, are the batches of one process."""
    shares = [list(make_sampler(rank=rank, world_size=world_size)) for rank in range(world_size)]
    together = [[key for share in step for key in share] for step in zip(*shares, strict=True)]
    assert together == list(make_sampler())


@settings(max_examples=200)
@given(samples=st.integers(0, 50), per_device=st.integers(1, 9), world_size=st.integers(1, 5))
def test_validation_covers_every_sample_once_in_equally_many_batches(
    samples: int, per_device: int, world_size: int
) -> None:
    """All ranks have the same number of batches, none empty or too long; every sample counts exactly once."""
    samplers = [
        SliceSampler(samples=samples, per_device=per_device, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    shares = [list(sampler) for sampler in samplers]
    assert len({len(share) for share in shares}) == 1
    assert all(1 <= len(keys) <= per_device for share in shares for keys in share)
    counted = [
        index
        for sampler, share in zip(samplers, shares, strict=True)
        for number, keys in enumerate(share)
        for _, index in keys[: sampler.count(number)]
    ]
    assert sorted(counted) == list(range(samples))


def test_trainer_never_imports_the_orchestrator() -> None:
    """No module of the trainer imports the orchestrator."""
    root = Path(__file__).resolve().parents[2] / "trainer"
    for path in root.rglob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.lstrip().startswith(("import orch", "from orch"))], path
