"""Checkpoints that have only the weights that are trained, as LoRA's: a run starts from them, and goes on."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.trainer import harness
from tests.trainer.divided_run import Line
from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError, CheckpointMismatchError
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.base.start_from import StartFrom
from trainer.checkpoints.store import load_checkpoint
from trainer.run.engine import run_recipe

# Shape legend: B batch.
FROZEN, TRAINED = "0.weight", "1.weight"


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    return {"loss": (model(batch[0]) - batch[1]).square().squeeze(1)}


def build(_: Settings) -> Workload:
    model = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 1, bias=False))
    model[0].requires_grad_(requires_grad=False)
    return Workload(
        model=model,
        train_data=Line(32),
        validation_data=Line(4),
        loss=lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]),
        metrics=measure,
        trainable_only=True,
    )


def train(folder: Path, *settings: str, start: StartFrom | None = None) -> dict[str, torch.Tensor]:
    """Train, and return the weights in the newest checkpoint."""
    base = Settings(epochs=1, batch_size=8, curves=False, onnx=False, log_every_steps=1)
    recipe = Recipe(settings=apply_overrides(base, settings), build=build)
    run_recipe("digits", recipe, read_contract({}, output_dir=folder), StopFlag(), start or StartFrom())
    weights: dict[str, torch.Tensor] = load_checkpoint(harness.newest_checkpoint(folder))["model"]
    return weights


def test_run_goes_on_from_and_starts_with_the_trained_weights(tmp_path: Path) -> None:
    """The frozen ones are the recipe's own: they are no missing ones."""
    first = train(tmp_path / "first")
    assert set(first) == {TRAINED}
    frozen = ("optimizer.learning_rate=1e-12", "schedule.name=constant")
    on = StartFrom(checkpoint=tmp_path / "first")
    went_on = train(tmp_path / "second", "epochs=2", "batch_size=4", *frozen, start=on)
    assert torch.allclose(went_on[TRAINED], first[TRAINED], atol=1e-6)
    assert [row["step"] for row in harness.read_rows(tmp_path / "second") if "lr" in row] == list(range(9, 17))
    init = StartFrom(init=str(harness.newest_checkpoint(tmp_path / "first")))
    started = train(tmp_path / "third", *frozen, start=init)
    assert torch.allclose(started[TRAINED], first[TRAINED], atol=1e-6)
    assert harness.read_status(tmp_path / "third")["step"] == 4


def test_whole_weights_of_another_script_are_used_where_they_are_trained(tmp_path: Path) -> None:
    """A foreign checkpoint of the whole model; without the trained weights it is refused."""
    theirs = {"epoch": 0, "model": {FROZEN: torch.ones(4, 1), TRAINED: torch.full((1, 4), 0.25)}}
    torch.save(theirs, tmp_path / "theirs.pth")
    frozen = ("optimizer.learning_rate=1e-12", "schedule.name=constant", "epochs=2")
    weights = train(tmp_path / "first", *frozen, start=StartFrom(checkpoint=tmp_path / "theirs.pth"))
    assert torch.allclose(weights[TRAINED], torch.full((1, 4), 0.25), atol=1e-6)
    torch.save({"epoch": 0, "model": {FROZEN: torch.ones(4, 1)}}, tmp_path / "other.pth")
    with pytest.raises(BadRequestError) as refused:
        train(tmp_path / "second", *frozen, start=StartFrom(checkpoint=tmp_path / "other.pth"))
    assert TRAINED in refused.value.why
    assert not (tmp_path / "second").exists()


def test_frozen_weights_of_init_come_back_on_resume_or_it_is_refused(tmp_path: Path) -> None:
    """The checkpoint hasn't got them: without the same file the run would go on with the recipe's own."""
    init = tmp_path / "init.pt"
    torch.save({FROZEN: torch.ones(4, 1), TRAINED: torch.full((1, 4), 0.25)}, init)
    start = StartFrom(init=str(init))
    whole = train(tmp_path / "whole", "epochs=2", "schedule.name=constant", start=start)
    train(tmp_path / "run", "schedule.name=constant", start=start)
    with pytest.raises(CheckpointMismatchError, match="not trained are others"):
        train(tmp_path / "run", "epochs=2", "schedule.name=constant")
    with pytest.raises(CheckpointMismatchError, match="not trained are others"):
        train(tmp_path / "new", "epochs=2", start=StartFrom(checkpoint=tmp_path / "run"))
    assert not (tmp_path / "new").exists()
    torch.save({FROZEN: torch.ones(4, 1)}, tmp_path / "base.pt")  # the trained ones are in the checkpoint
    both = StartFrom(init=str(tmp_path / "base.pt"), checkpoint=tmp_path / "run")
    assert torch.equal(
        train(tmp_path / "new", "epochs=2", "schedule.name=constant", start=both)[TRAINED], whole[TRAINED]
    )
    torch.save({TRAINED: torch.zeros(1, 4)}, tmp_path / "none.pt")
    with pytest.raises(BadRequestError, match="don't fit this model"):
        train(tmp_path / "newer", start=StartFrom(init=str(tmp_path / "none.pt"), checkpoint=tmp_path / "run"))
    torch.save({FROZEN: torch.full((4, 1), 2.0), TRAINED: torch.zeros(1, 4)}, tmp_path / "other.pt")
    with pytest.raises(CheckpointMismatchError, match="not trained are others"):
        train(tmp_path / "run", "epochs=2", start=StartFrom(init=str(tmp_path / "other.pt")))
    resumed = train(tmp_path / "run", "epochs=2", "schedule.name=constant", start=start)
    assert torch.equal(resumed[TRAINED], whole[TRAINED])
