"""Steps of two ranks, however they share the work, and what is left when one of them fails."""

from pathlib import Path

import pytest

from tests.trainer import harness, step_ranks
from tests.trainer.ranks import OnRanks

SCRIPT = str(Path(step_ranks.__file__))


@pytest.mark.parametrize("name", [name for name in step_ranks.CASES if name not in step_ranks.COMPILED])
def test_two_ranks_learn_what_one_process_learns(name: str, on_ranks: OnRanks) -> None:
    """Uneven labels, a loss that calls a method of the model; DDP and FSDP with what can be set about them."""
    on_ranks(2, lambda group: step_ranks.compare(name, group))


def test_sharded_step_averages_gradients_once(on_ranks: OnRanks) -> None:
    """Whatever its micro-batches: one reduce-scatter for the block, one for the rest."""
    sizes = (4, 2, 1)
    counts = on_ranks(2, lambda group: [step_ranks.count_reduce_scatters(size, group) for size in sizes])
    assert counts == [[2, 2, 2]] * 2


def test_step_averages_gradients_once_under_ddp(on_ranks: OnRanks) -> None:
    """Without `no_sync` each micro-batch would: one for each of two steps."""
    sizes = (4, 2, 1)
    counts = on_ranks(2, lambda group: [step_ranks.count_all_reduces(size, group) for size in sizes])
    assert counts == [[2, 2, 2]] * 2


@pytest.mark.slow
def test_two_ranks_learn_compiled_what_one_process_learns() -> None:
    """One of them sharded, recomputed and accumulated too."""
    ended = harness.run_script(SCRIPT, "steps", processes=2)
    assert ended.code == 0, ended.err
    agreed = [line for line in ended.out.splitlines() if line.startswith("agrees")]
    assert agreed == [f"agrees: {name}" for name in step_ranks.COMPILED]


@pytest.mark.slow
def test_failing_rank_leaves_without_destroying_the_group() -> None:
    """That would wait for the others, who wait for it in an all-reduce; they fail when it is gone."""
    ended = harness.run_script(SCRIPT, "failure", processes=2)
    assert ended.code == 1
    assert "rank 1: True True" in ended.out
