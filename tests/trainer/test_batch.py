"""The global batch, and how it is split."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer import harness
from trainer.base.errors import BadRequestError
from trainer.step.batch import (
    find_batch_concern,
    halve_micro_batch,
    nearest_batches,
    nearest_micro_batches,
    plan_batch,
    render_split,
)


@pytest.mark.parametrize(
    ("batch_size", "world_size", "per_device"),
    [(8, 1, 8), (8, 8, 1), (64, 8, 8), (128, 8, 16), (56, 7, 8), (392, 7, 56), (128, 16, 8)],
)
def test_batch_size_is_global_and_every_process_gets_its_share(
    batch_size: int, world_size: int, per_device: int
) -> None:
    """The reference workflows' figures: 56 over 7 GPUs are 8 each, never 56 each."""
    plan = plan_batch(batch_size=batch_size, world_size=world_size, samples=1000, epochs=1)
    assert (plan.per_device, plan.accumulation) == (per_device, 1)
    assert f"batch {batch_size} = {world_size} x {per_device}" in render_split(plan)


def test_steps_are_whole_batches() -> None:
    """100 samples make one step of 64 an epoch, the rest is dropped; an 8x batch has an eighth of the steps."""
    plan = plan_batch(batch_size=64, world_size=2, samples=100, epochs=3)
    assert (plan.steps_per_epoch, plan.total_steps) == (1, 3)
    small, large = (plan_batch(batch_size=size, world_size=1, samples=1024, epochs=1) for size in (8, 64))
    assert small.total_steps == 8 * large.total_steps


@pytest.mark.parametrize(("batch_size", "is_warned"), [(8, True), (64, False)])
def test_one_sample_per_process_gives_a_warning(batch_size: int, *, is_warned: bool) -> None:
    """8 over 8 processes trains, with a warning that names a better batch; 64 over 8 has none."""
    concern = find_batch_concern(plan_batch(batch_size=batch_size, world_size=8, samples=1000, epochs=1))
    assert (concern is not None) == is_warned
    assert concern is None or "--set batch_size=64" in concern


@pytest.mark.parametrize(
    ("batch_size", "world_size", "samples", "what", "fix"),
    [
        (100, 8, 1000, "does not divide over 8", "use --set batch_size=96 or --set batch_size=104"),
        (3, 8, 1000, "does not divide over 8", "use --set batch_size=8"),
        (1500, 1, 1437, "would train zero steps", "use --set batch_size=1437"),
        (1440, 2, 1437, "would train zero steps", "use --set batch_size=1436"),
        (8, 8, 5, "would train zero steps", "use at most 5 processes"),
    ],
)
def test_batch_that_cannot_be_trained_names_the_nearest_ones(
    batch_size: int, world_size: int, samples: int, what: str, fix: str
) -> None:
    """Refused, never silently changed; the proposed sizes are themselves accepted."""
    with pytest.raises(BadRequestError, match=what) as caught:
        plan_batch(batch_size=batch_size, world_size=world_size, samples=samples, epochs=1)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("micro_batch", "fix"),
    [
        (5, "use --set micro_batch=4 or --set micro_batch=8"),
        (20, "use --set micro_batch=16 or --set micro_batch=32"),
        (64, "use --set micro_batch=32"),
    ],
)
def test_micro_batch_that_does_not_divide_names_the_nearest_ones(micro_batch: int, fix: str) -> None:
    """A share of 32 has micro-batches of 1, 2, 4, 8, 16 and 32."""
    with pytest.raises(BadRequestError, match=f"micro_batch {micro_batch} does not divide") as caught:
        plan_batch(batch_size=64, world_size=2, samples=1000, epochs=1, micro_batch=micro_batch)
    assert caught.value.fix == fix


def test_nearest_sizes_of_a_valid_one_are_its_neighbours() -> None:
    """A micro-batch isn't its own neighbour; no batch is larger than the samples."""
    assert [nearest_micro_batches(size, 32) for size in (1, 4, 32)] == [[2], [2, 8], [16]]
    assert nearest_batches(8, 4, 10) == [8]
    assert nearest_batches(8, 4, 12) == [8, 12]
    assert nearest_batches(1, 4, 3) == []


@given(world_size=st.integers(1, 9), accumulation=st.integers(1, 9), micro_batch=st.integers(1, 9))
def test_processes_times_accumulation_times_micro_batch_is_the_global_batch(
    world_size: int, accumulation: int, micro_batch: int
) -> None:
    """Whatever the split, no sample is lost or counted twice."""
    batch_size = world_size * accumulation * micro_batch
    plan = plan_batch(
        batch_size=batch_size, world_size=world_size, samples=batch_size, epochs=1, micro_batch=micro_batch
    )
    assert plan.accumulation == accumulation


@given(per_device=st.integers(1, 500))
def test_halved_micro_batches_always_divide_the_share(per_device: int) -> None:
    """Halved until nothing is left to halve: at most half each time, down to one sample."""
    sizes = [per_device]
    while (size := halve_micro_batch(sizes[-1])) is not None:
        assert size * 2 <= sizes[-1]
        sizes.append(size)
    assert sizes[-1] == 1
    assert all(per_device % size == 0 for size in sizes)


def test_accumulation_is_printed_at_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The banner shows how the global batch is split."""
    stop = harness.StopAtLook(1)
    assert harness.call(tmp_path / "output", *harness.SMALL, "micro_batch=4", stop=stop) == 0
    assert "batch 16 = 1 x 4 accumulated x 4" in capsys.readouterr().out
