"""Early stopping, the best weights with a gap between their saves, and many short epochs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.trainer import harness, line
from trainer.base.recipe import Workload
from trainer.base.sources import Batch
from trainer.checkpoints.store import load_checkpoint
from trainer.run.best import BestMetric, BestRecord, choose_best_metric

# Shape legend: B batch.
STEPS = line.STEPS_PER_EPOCH
Evaluate = Callable[[nn.Module, Iterator[Batch]], Mapping[str, float]]


def scripted(*scores: float) -> Evaluate:
    """An evaluation that gives these scores, by epoch: a training's course as a test needs it."""
    left = iter(scores)
    return lambda _model, batches: {"score": next(left) + 0 * len(list(batches))}


BY_SCORE = ("validate.best=score", "validate.best_is=max")


def test_run_without_a_gain_ends_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After two validations without a new best: succeeded, with outputs, and why; the best weights are exported."""
    recipe = line.recipe("epochs=9", *BY_SCORE, "validate.patience=2", evaluate=scripted(0.1, 0.5, 0.4, 0.5))
    assert line.train(recipe, tmp_path / "o") == 0
    status = harness.read_status(tmp_path / "o")
    assert (status["state"], status["step"]) == ("succeeded", 4 * STEPS)
    assert status["ended_early"] == "val_score has not improved in 2 validations"
    rows = [row for row in harness.read_rows(tmp_path / "o") if "val_score" in row]
    assert [row["validations_without_gain"] for row in rows] == [0, 0, 1, 2]
    assert "ended early: val_score has not improved in 2 validations" in capsys.readouterr().out
    assert load_checkpoint(harness.best_checkpoint(tmp_path / "o"))["epoch"] == 2
    assert (tmp_path / "o" / "model.safetensors").exists()


def test_run_ends_early_within_an_epoch(tmp_path: Path) -> None:
    """Validated every three steps: the second validation in a row without a gain is the last."""
    settings = ("validate.every_steps=3", "validate.every_epochs=0", "validate.patience=2")
    recipe = line.recipe(*settings, *BY_SCORE, evaluate=scripted(0.5, 0.5, 0.5))
    assert line.train(recipe, tmp_path / "o") == 0
    status = harness.read_status(tmp_path / "o")
    assert (status["state"], status["step"]) == ("succeeded", 9)
    assert Path(status["checkpoint"]).stem == "step-00000009"


def test_run_that_ended_early_is_complete_until_it_gets_more_patience(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("epochs=5", *BY_SCORE)
    first = line.recipe(*settings, "validate.patience=1", evaluate=scripted(0.5, 0.4))
    assert line.train(first, tmp_path / "o") == 0
    again = line.recipe(*settings, "validate.patience=1", evaluate=scripted())
    assert line.train(again, tmp_path / "o") == 0
    assert "nothing to do" in capsys.readouterr().out
    more = line.recipe(*settings, "validate.patience=3", evaluate=scripted(0.6, 0.6, 0.6))
    assert line.train(more, tmp_path / "o") == 0
    assert harness.read_status(tmp_path / "o")["step"] == 5 * STEPS


def test_gain_below_the_least_is_none() -> None:
    """A slow creep doesn't reset the patience, unless it adds up to the least gain."""
    metric, record = BestMetric(name="val_loss", best_is="min"), BestRecord()
    for epoch, loss in enumerate([1.0, 0.95, 0.9, 0.85], start=1):
        record.add(metric, loss, epoch=epoch, least_gain=0.12)
    assert (record.value, record.epoch, record.waited) == (0.85, 4, 0)
    record.add(metric, float("nan"), epoch=5, least_gain=0.12)
    assert (record.value, record.waited) == (0.85, 1)


@pytest.mark.parametrize("gap", ["epochs=2", f"steps={2 * STEPS}"])
def test_best_is_saved_with_a_gap_and_the_end_says_what_was_not(
    gap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within two epochs of a saved best nothing is saved; a later one that is better than it is."""
    settings = ("epochs=6", *BY_SCORE, f"validate.best_gap_{gap}", "checkpoint.keep_best=9")
    recipe = line.recipe(*settings, evaluate=scripted(0.1, 0.2, 0.3, 0.6, 0.5, 0.4))
    assert line.train(recipe, tmp_path / "o") == 0
    saved = [load_checkpoint(path)["epoch"] for path in sorted((tmp_path / "o" / "checkpoints").glob("best-*"))]
    assert saved == [1, 3, 5]
    said = capsys.readouterr().out
    assert "best val_score 0.6 (epoch 4), not saved because of validate.best_gap_*: " in said
    assert "0.5 of epoch 5 was" in said
    exported = load_file(tmp_path / "o" / "model.safetensors")
    best = load_checkpoint(tmp_path / "o" / "checkpoints" / f"best-{5 * STEPS:08d}.safetensors")["model"]
    assert all(torch.equal(exported[name], best[name]) for name in best)


def test_settings_choose_another_metric_than_the_recipe() -> None:
    workload: Workload = line.build(line.recipe().settings)
    chosen = choose_best_metric(line.recipe("validate.best=error", "validate.best_is=max").settings.validate, workload)
    assert (chosen.name, chosen.best_is) == ("val_error", "max")
    assert choose_best_metric(line.recipe().settings.validate, workload).name == "val_loss"


def test_thousand_short_epochs_cost_few_validations_saves_and_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Validated every 250 epochs, saved then, and one line for each of them: not a thousand of each."""
    validations: list[int] = []

    def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
        validations.append(1)
        return line.measure(model, batch)

    settings = ("epochs=1000", "validate.every_epochs=250", "log_every_steps=500", "checkpoint.keep=100")
    one_step = line.Line(line.BATCH)
    assert line.train(line.recipe(*settings, train_data=one_step, metrics=measure), tmp_path / "o") == 0
    assert len(validations) == 4 * 2
    steps = [int(path.stem.removeprefix("step-")) for path in (tmp_path / "o" / "checkpoints").glob("step-*")]
    assert {250, 500, 750, 1000} <= set(steps)
    assert len(steps) < 10
    lines = [text for text in capsys.readouterr().out.splitlines() if text.startswith("epoch ")]
    assert sum("val_loss" in text for text in lines) == 4
    assert len(lines) < 50


def test_milestones_are_kept_beside_the_newest(tmp_path: Path) -> None:
    """Epochs 3 and 6, whatever else is saved or pruned."""
    settings = ("epochs=8", "checkpoint.keep=1", "checkpoint.keep_every_epochs=3", "validate.every_epochs=0")
    assert line.train(line.recipe(*settings), tmp_path / "o") == 0
    kept = sorted(path.stem for path in (tmp_path / "o" / "checkpoints").glob("step-*"))
    assert kept == [f"step-{epoch * STEPS:08d}" for epoch in (3, 6, 8)]


def test_milestones_by_steps_are_saved_and_kept(tmp_path: Path) -> None:
    """Within an epoch, and at its end; nothing else asks for these saves."""
    off = ("validate.every_epochs=0", "checkpoint.every_epochs=0")
    recipe = line.recipe("epochs=6", "checkpoint.keep=1", "checkpoint.keep_every_steps=6", *off)
    assert line.train(recipe, tmp_path / "o") == 0
    kept = sorted(path.stem for path in (tmp_path / "o" / "checkpoints").glob("step-*"))
    assert kept == [f"step-{step:08d}" for step in (6, 12, 18, 24)]
