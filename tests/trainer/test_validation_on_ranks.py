"""Validation, samples and the end of a run on several ranks."""

from pathlib import Path

import pytest

from tests.trainer import harness, line, line_run


def last_validation(folder: Path) -> dict[str, float]:
    (*_, row) = (row for row in harness.read_rows(folder) if "val_loss" in row)
    return {name: value for name, value in row.items() if name.startswith("val_")}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), ("compute.fully_shard=on",)], ids=["whole", "sharded"])
def test_two_ranks_measure_what_one_does(settings: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever the shares are: the weighted loss, a metric of the whole set, the recipe's own evaluation.

    With an odd number of samples, so that the second rank's last batch is only padding. It stays until the first one
    has written the outputs.
    """
    assert line.train(line_run.recipe(), tmp_path / "one") == 0
    ended = harness.run_script("tests/trainer/line_run.py", str(tmp_path / "two"), *settings, processes=2)
    assert ended.code == 0, ended.err
    one, two = last_validation(tmp_path / "one"), last_validation(tmp_path / "two")
    # A sharded model needs every rank in each pass: the recipe's own evaluation sees the padding as well.
    if settings:
        one.pop("val_mean_x"), two.pop("val_mean_x")
    assert two == pytest.approx(one, abs=1e-6)
    assert one["val_count"] == line_run.SAMPLES
    assert (tmp_path / "two" / "samples" / "epoch-000002" / "step.txt").read_text() == str(2 * line.STEPS_PER_EPOCH)


@pytest.mark.slow
def test_rank_without_validation_samples_waits_for_nobody(tmp_path: Path) -> None:
    """One sample for two ranks: the recipe's own evaluation runs on the first alone."""
    ended = harness.run_script("tests/trainer/line_run.py", str(tmp_path), line_run.ONE_SAMPLE, processes=2)
    assert ended.code == 0, ended.err
    assert last_validation(tmp_path)["val_count"] == 1
