"""Steps of two ranks, however they share the work, and what is left when one of them fails."""

from pathlib import Path

import pytest

from tests.trainer import harness, step_ranks

SCRIPT = str(Path(step_ranks.__file__))


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns() -> None:
    """Uneven labels, a loss that calls a method of the model; DDP and FSDP with what can be set about them.

    Some are compiled, recomputed or offloaded. A step averages gradients once, whatever its micro-batches.
    """
    ended = harness.run_script(SCRIPT, "steps", processes=2)
    assert ended.code == 0, ended.err
    assert [line for line in ended.out.splitlines() if line.startswith("agrees")] == [
        f"agrees: {name}" for name in step_ranks.CASES
    ]
    # One for the block, one for the rest.
    assert "reduce-scatters with 1, 2 and 4 micro-batches: [2, 2, 2]" in ended.out
    # One for each of two steps.
    assert "all-reduces with 1, 2 and 4 micro-batches: [2, 2, 2]" in ended.out


@pytest.mark.slow
def test_failing_rank_leaves_without_destroying_the_group() -> None:
    """That would wait for the others, who wait for it in an all-reduce; they fail when it is gone."""
    ended = harness.run_script(SCRIPT, "failure", processes=2)
    assert ended.code == 1
    assert "rank 1: True True" in ended.out
