"""The plain loops of the bench compute what the recipe's operations do."""

from benchmarks.trainer.bench_points import compare


def test_plain_loops_compute_the_same() -> None:
    assert list(compare()) == []
