"""When a run validates, what it measures, and that a stop anywhere in between changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import harness, line
from trainer.base.recipe import Moment, Recipe
from trainer.base.sources import Batch
from trainer.checkpoints.store import load_checkpoint

# Shape legend: B batch.
STEPS = line.STEPS_PER_EPOCH


def validated_steps(folder: Path) -> list[int]:
    return [row["step"] for row in harness.read_rows(folder) if "val_loss" in row]


def noisy(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Metrics that draw random numbers: as a diffusion model's validation does."""
    values = line.measure(model, batch)
    return {name: value + torch.rand_like(value) for name, value in values.items()}


def test_validation_that_draws_random_numbers_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Stopped within the first validation: its metrics and all later steps are those of the uninterrupted run."""
    make = partial(line.recipe, metrics=noisy)
    assert line.train(make(), tmp_path / "whole") == 0
    assert line.train(make(), tmp_path / "cut", harness.StopAtLook(STEPS + 2)) == 0
    assert harness.read_status(tmp_path / "cut")["state"] == "stopped"
    assert line.train(make(), tmp_path / "cut") == 0
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_validation_leaves_the_random_numbers_of_training_alone(tmp_path: Path) -> None:
    """The losses with dropout are the same whether validation draws or not, and however often it happens."""
    losses = []
    for number, (metrics, every) in enumerate([(noisy, 1), (line.measure, 1), (noisy, 0)]):
        folder = tmp_path / str(number)
        assert line.train(line.recipe(f"validate.every_epochs={every}", metrics=metrics), folder) == 0
        losses.append([row["loss"] for row in harness.read_rows(folder) if "loss" in row])
    assert losses[0] == losses[1] == losses[2]


def test_run_is_validated_every_so_many_epochs_and_at_its_end(tmp_path: Path) -> None:
    assert line.train(line.recipe("epochs=5", "validate.every_epochs=2"), tmp_path / "o") == 0
    assert validated_steps(tmp_path / "o") == [2 * STEPS, 4 * STEPS, 5 * STEPS]


def test_run_is_validated_within_epochs(tmp_path: Path) -> None:
    """Every three steps, at the ends of epochs, and a step that is both once."""
    assert line.train(line.recipe("validate.every_steps=3"), tmp_path / "o") == 0
    assert validated_steps(tmp_path / "o") == [3, 4, 6, 8, 9, 12]


def test_run_ends_after_max_steps_within_an_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Validated and saved there; the same command has nothing to do, more steps go on."""
    settings = ("validate.every_epochs=0", "max_steps=6")
    assert line.train(line.recipe(*settings), tmp_path / "o") == 0
    status = harness.read_status(tmp_path / "o")
    assert (status["state"], status["step"], status["steps"]) == ("succeeded", 6, 6)
    assert validated_steps(tmp_path / "o") == [6]
    assert "3 epochs x 4 steps up to step 6" in capsys.readouterr().out
    assert line.train(line.recipe(*settings), tmp_path / "o", harness.StopAtLook(1)) == 0
    assert harness.read_status(tmp_path / "o")["state"] == "succeeded"


@pytest.mark.parametrize(
    "settings", [("validate.every_steps=3",), ("validate.every_epochs=2", "validate.every_steps=5", "max_steps=11")]
)
def test_run_that_is_stopped_at_every_poll_ends_with_the_same_bits(settings: Sequence[str], tmp_path: Path) -> None:
    """Stops fall between steps, and within validations in mid-epoch and at an epoch's end: none is lost or repeated."""
    settings = (*settings, "micro_batch=4", "ema_decay=0.5", "checkpoint.every_steps=2")
    make = partial(line.recipe, *settings, metrics=noisy)
    assert line.train(make(), tmp_path / "whole") == 0
    assert line.train_in_pieces(make, tmp_path / "cut", harness.StopAtLook) > 7
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_recipe_without_metrics_is_validated_by_its_loss_and_weights(tmp_path: Path) -> None:
    """The mean over all that counts, not the mean of the batches' means: here batches of 8 and 2 samples."""

    def is_positive(batch: Batch) -> torch.Tensor:
        mask: torch.Tensor = (batch[0] > 0).float()
        return mask

    def loss(model: nn.Module, batch: Batch, moment: Moment) -> torch.Tensor:
        assert 0 <= moment.fraction <= 1
        counted = (batch[0] * is_positive(batch)).sum() / is_positive(batch).sum()
        mean: torch.Tensor = counted + 0 * model(batch[0]).sum()
        return mean

    recipe = line.recipe("epochs=1", metrics=None, loss=loss, weight=lambda batch: is_positive(batch).sum())
    assert line.train(recipe, tmp_path / "o") == 0
    x_B = line.Line(line.VALIDATION_SAMPLES).x_B
    expected = x_B[x_B > 0].mean().item()
    (row,) = (row for row in harness.read_rows(tmp_path / "o") if "val_loss" in row)
    assert row["val_loss"] == pytest.approx(expected, abs=1e-5)


BIG = 2.0**25
"""A float32 of this size and 1 more are the same."""


@pytest.mark.parametrize("has_metrics", [True, False])
def test_long_sums_of_validation_lose_no_digits(has_metrics: bool, tmp_path: Path) -> None:
    """The second batch's sum is lost beside the first one's in float32: there are samples without end in between."""

    def measure(_model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
        is_first = len(batch[0]) == line.BATCH
        return {"loss": torch.tensor([BIG if is_first else 1.0] + [0.0] * (len(batch[0]) - 1))}

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        mean: torch.Tensor = measure(model, batch)["loss"].mean() + 0 * model(batch[0]).sum()
        return mean if not model.training else 0 * mean

    changes: dict[str, Any] = {"metrics": measure} if has_metrics else {"metrics": None, "loss": loss}
    assert line.train(line.recipe("epochs=1", **changes), tmp_path / "o") == 0
    measured = load_checkpoint(harness.best_checkpoint(tmp_path / "o"))["metrics"]["val_loss"]
    assert round(measured * line.VALIDATION_SAMPLES, 3) == BIG + 1


@pytest.mark.parametrize("counted", [0, 4], ids=["nowhere", "in one batch"])
def test_validation_loss_where_nothing_counts_is_left_out(counted: int, tmp_path: Path) -> None:
    """The last batch of two has no weight, or none has: its loss, the NaN of a mean over nothing, counts as 0."""

    def count(batch: Batch) -> torch.Tensor:
        return torch.tensor(float(counted if len(batch[0]) == line.BATCH else 0))

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        mean: torch.Tensor = 0 * model(batch[0]).sum() + 3 * count(batch) / count(batch)
        return mean if not model.training else mean.nan_to_num()

    recipe = line.recipe("epochs=1", metrics=None, loss=loss, weight=count)
    assert line.train(recipe, tmp_path / "o") == 0
    (row,) = (row for row in harness.read_rows(tmp_path / "o") if "val_loss" in row)
    assert row["val_loss"] == (3 if counted else 0)


def test_batch_whose_rows_are_no_samples_is_validated_whole(tmp_path: Path) -> None:
    """A collate that concatenates two rows per sample: an evaluation and the loss see all of them."""
    seen: list[int] = []

    def collate(samples: list[Any]) -> Batch:
        return {"points": torch.cat([sample[0].repeat(2)[:, None] for sample in samples]), "n": len(samples)}

    def evaluate(_model: nn.Module, batches: Iterator[Batch]) -> Mapping[str, float]:
        seen.extend(len(batch["points"]) for batch in batches)
        return {}

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        assert len(batch["points"]) == 2 * batch["n"]
        mean: torch.Tensor = model(batch["points"]).square().mean()
        return mean

    recipe = line.recipe("epochs=1", metrics=None, loss=loss, collate=collate, evaluate=evaluate)
    assert line.train(recipe, tmp_path / "o") == 0
    assert seen == [16, 4]


class Range:
    """A metric of the whole set, which no mean over batches gives: the range of what the model saw."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def update(self, model: nn.Module, batch: Batch) -> None:
        assert model(batch[0]).shape == batch[0].shape
        self.seen += batch[0].flatten().tolist()

    def state(self) -> Any:
        return {"seen": self.seen}

    def merge(self, states: Sequence[Any]) -> Mapping[str, float]:
        seen = [value for state in states for value in state["seen"]]
        return {"range": max(seen) - min(seen), "count": len(seen)}


def mean_of_x(_model: nn.Module, batches: Iterator[Batch]) -> Mapping[str, float]:
    x_B = torch.cat([batch[0] for batch in batches])
    return {"mean_x": x_B.mean().item()}


def test_metrics_of_the_whole_set_see_each_sample_once(tmp_path: Path) -> None:
    """Set metrics, whose result no mean of batches gives, and the recipe's own evaluation, beside the others."""
    recipe = line.recipe("epochs=1", set_metrics={"range": Range}, evaluate=mean_of_x)
    assert line.train(recipe, tmp_path / "o") == 0
    row = harness.read_rows(tmp_path / "o")[-1]
    assert row["val_range"] == pytest.approx(2.0)
    assert row["val_count"] == line.VALIDATION_SAMPLES
    assert row["val_mean_x"] == pytest.approx(0.0, abs=1e-6)
    assert {"val_loss", "val_error"} <= row.keys()


def test_run_that_is_stopped_in_the_recipe_s_own_evaluation_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Even one that catches all errors; it is evaluated anew, with the same random numbers."""

    def careful(model: nn.Module, batches: Iterator[Batch]) -> Mapping[str, float]:
        try:
            return {"spread": sum(float(model(batch[0]).std() + torch.rand(())) for batch in batches)}
        except Exception as err:
            raise AssertionError("a stop is no error of the recipe") from err

    def make() -> Recipe[Any]:
        return line.recipe("epochs=2", evaluate=careful)

    assert line.train(make(), tmp_path / "whole") == 0
    # Looks: each step, two batches of metrics, and the second batch of the evaluation.
    assert line.train(make(), tmp_path / "cut", harness.StopAtLook(STEPS + 4)) == 0
    status = harness.read_status(tmp_path / "cut")
    assert (status["state"], status["step"]) == ("stopped", STEPS)
    assert line.train(make(), tmp_path / "cut") == 0
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_metrics_with_the_same_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = line.recipe(evaluate=lambda _model, batches: {"loss": float(len(list(batches)))})
    assert line.train(recipe, tmp_path / "o") == 2
    assert "two metrics of the recipe have the same name" in capsys.readouterr().err


def test_unknown_best_metric_is_refused_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line.train(line.recipe("validate.best=iou", "validate.best_is=max"), tmp_path / "o") == 2
    assert "it measures val_error, val_loss" in capsys.readouterr().err


def test_best_metric_without_a_direction_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe gives the direction of its own metric only; nothing is written."""
    assert line.train(line.recipe("validate.best=error"), tmp_path / "o") == 2
    assert "--set validate.best_is=max" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("call", [2, 4, 6])
def test_run_that_fails_within_a_validation_ends_with_the_same_bits(call: int, tmp_path: Path) -> None:
    """It goes on from an earlier checkpoint; the rows that were written since are written again, not twice."""
    settings = ("validate.every_steps=3", "checkpoint.every_steps=2", "checkpoint.every_epochs=0")
    assert line.train(line.recipe(*settings, metrics=noisy), tmp_path / "whole") == 0
    calls = count(1)

    def failing(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
        if next(calls) == call:
            raise RuntimeError("of this test")
        return noisy(model, batch)

    with pytest.raises(RuntimeError, match="of this test"):
        line.train(line.recipe(*settings, metrics=failing), tmp_path / "cut")
    assert harness.read_status(tmp_path / "cut")["state"] == "failed"
    assert line.train(line.recipe(*settings, metrics=noisy), tmp_path / "cut") == 0
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")


class Telling(nn.Module):
    """A line whose values tell whether it was compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x_B1: torch.Tensor) -> torch.Tensor:
        values_B1: torch.Tensor = self.inner(x_B1)
        return values_B1 + (100.0 if torch.compiler.is_compiling() else 0.0)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_validation_of_a_compiled_model_is_compiled(
    decay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model itself, or its moving average."""
    # Without inductor, whose C++ compiler takes seconds.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    settings = ("epochs=1", f"ema_decay={decay}", "compute.compile=on", "optimizer.learning_rate=1e-6")
    assert line.train(line.recipe(*settings, model=Telling()), tmp_path / "o") == 0
    assert harness.read_rows(tmp_path / "o")[-1]["val_error"] > 90
