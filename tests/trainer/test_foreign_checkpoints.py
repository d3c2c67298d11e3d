"""`--from` with another trainer's checkpoint: its training goes on at its epoch, with its moments."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import harness
from trainer.checkpoints.store import load_checkpoint
from trainer.recipes.digits import SmallResNet

SMALL = ("batch_size=480", "model.width=4", "curves=false", "onnx=false", "log_every_steps=1", "checkpoint.keep=99")
STEPS_PER_EPOCH = 2


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """What a script of W1's kind saves: model under DDP, Adam after three steps, the index of the epoch that ended."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = SmallResNet(width=4, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    images_BCHW, labels_B = torch.rand(32, 1, 8, 8), torch.randint(10, (32,))
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images_BCHW), labels_B).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {
        "epoch": 1999,
        "model_state": {f"module.{name}": tensor for name, tensor in model.state_dict().items()},
        "optimizer_state": optimizer.state_dict(),
    }


def save(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


def go_on(folder: Path, path: Path, *settings: str, flags: tuple[str, ...] = ()) -> int:
    return harness.call(folder, *SMALL, *settings, flags=("--from", path, *flags))


def newest(folder: Path) -> dict[str, Any]:
    return load_checkpoint(harness.newest_checkpoint(folder))


def test_checkpoint_of_epoch_1999_goes_on_with_the_2001st(
    theirs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """W1: 2,000 epochs are done; rate, position, weights and moments go on from there, and each is said."""
    path = save(theirs, tmp_path / "epoch_1999.pth")
    folder = tmp_path / "output"
    frozen = ("epochs=2001", "optimizer.learning_rate=1e-12", "schedule.name=constant", "schedule.warmup_steps=0")
    assert go_on(folder, path, *frozen) == 0
    out = capsys.readouterr().out
    assert "goes on from epoch_1999.pth, another trainer's: epoch 2001 of 2001, 0 of 2 steps in" in out
    assert "'epoch': 1999 is read as the index of the last epoch done: 2,000 epochs are done; --epochs-done" in out
    assert "kept: the optimizer's moments of 24 parameters" in out
    assert [row["step"] for row in harness.read_rows(folder) if "lr" in row] == [4001, 4002]
    state = newest(folder)
    for name in ("stem.0.weight", "classifier.bias"):
        assert torch.allclose(state["model"][name], theirs["model_state"][f"module.{name}"], atol=1e-6)
    assert {int(values["step"]) for values in state["optimizer"]["state"].values()} == {3 + 2}


def test_epoch_in_the_files_name_or_in_a_flag_tells_how_many_are_done(
    theirs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that saves N + 1 in a file named N: N + 1 are done. --epochs-done overrides what the file says."""
    for name, epoch, flags, expected in (
        ("epoch_0.pth", 1, (), "epoch 2 of 3"),
        ("latest.pth", 1, (), "epoch 3 of 3"),
        ("latest2.pth", 1, ("--epochs-done", "1"), "epoch 2 of 3"),
    ):
        path = save({**theirs, "epoch": epoch}, tmp_path / name)
        assert go_on(tmp_path / name.replace(".", "-"), path, "epochs=3", flags=flags) == 0
        assert f"another trainer's: {expected}" in capsys.readouterr().out


def test_file_that_counts_only_steps_goes_on_at_its_step(
    theirs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three steps of two an epoch: in the middle of the second."""
    content = {"global_step": torch.tensor(3), **theirs}
    content.pop("epoch")
    assert go_on(tmp_path / "output", save(content, tmp_path / "theirs.pth"), "epochs=2") == 0
    assert "epoch 2 of 2, 1 of 2 steps in" in capsys.readouterr().out
    content.pop("global_step")
    assert go_on(tmp_path / "second", save(content, tmp_path / "theirs.pth"), "epochs=2") == 2
    assert "--epochs-done N" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


def test_nothing_left_and_other_weights_are_refused_with_nothing_changed(
    theirs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run has fewer epochs than are done; the model is another one."""
    path = save(theirs, tmp_path / "epoch_1999.pth")
    for settings, expected in (
        ("epochs=12", "2000 epochs are done in this checkpoint"),
        ("model.width=6", "--init FILE --loosely"),
    ):
        assert go_on(tmp_path / "output", path, settings) == 2
        assert expected in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_moments_that_dont_fit_are_new_and_that_is_said(
    theirs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another optimizer, none at all, or one moment of another shape: the weights are kept in each case."""
    damaged = harness.copy_state(theirs)
    damaged["optimizer_state"]["state"][0]["exp_avg"] = torch.zeros(4, 1, 3, 2)
    without = {key: value for key, value in theirs.items() if key != "optimizer_state"}
    for number, (content, settings, expected) in enumerate(
        (
            (theirs, ("optimizer.name=sgd",), "adam are no use to sgd"),
            (damaged, (), "exp_avg of stem.0.weight is 4x1x3x2 instead of 4x1x3x3"),
            (without, (), "the checkpoint has none"),
        )
    ):
        path = save({**content, "epoch": 0}, tmp_path / f"{number}.pth")
        assert go_on(tmp_path / f"output{number}", path, "epochs=2", *settings) == 0
        assert f"new: the optimizer's moments ({expected}" in capsys.readouterr().out.replace("those of ", "")


def test_moments_follow_the_order_of_the_files_own_parameters(theirs: dict[str, Any], tmp_path: Path) -> None:
    """A script whose model registers the head first numbers its moments otherwise: each parameter gets its own."""
    model = SmallResNet(width=4, dropout=0.0)
    numbers = {name: number for number, (name, _) in enumerate(model.named_parameters())}
    weights = theirs["model_state"]
    order = sorted(weights, key=lambda name: not name.startswith("module.classifier"))
    parameters = [name.removeprefix("module.") for name in order if name.removeprefix("module.") in numbers]
    old = theirs["optimizer_state"]
    state = {number: old["state"][numbers[name]] for number, name in enumerate(parameters)}
    content = {
        "epoch": 0,
        "model_state": {name: weights[name] for name in order},
        "optimizer_state": {**old, "state": state},
    }
    first = save({**theirs, "epoch": 0}, tmp_path / "first.pth")
    second = save(content, tmp_path / "second.pth")
    assert go_on(tmp_path / "one", first, "epochs=2") == 0
    assert go_on(tmp_path / "two", second, "epochs=2") == 0
    harness.assert_equal(newest(tmp_path / "two")["optimizer"], newest(tmp_path / "one")["optimizer"], "moments")
    harness.assert_equal(newest(tmp_path / "two")["model"], newest(tmp_path / "one")["model"], "weights")


def test_average_in_the_file_is_kept(theirs: dict[str, Any], tmp_path: Path) -> None:
    """An EMA beside the weights is that of a run with an EMA."""
    average = {name: torch.full_like(tensor, 0.5) for name, tensor in theirs["model_state"].items()}
    path = save({**theirs, "ema": average}, tmp_path / "theirs.pth")
    folder = tmp_path / "output"
    # So late in a run the average moves slowly.
    frozen = ("epochs=2001", "optimizer.learning_rate=1e-12", "schedule.warmup_steps=0", "ema_decay=0.9999")
    assert go_on(folder, path, *frozen) == 0
    weight = newest(folder)["average"]["classifier.weight"]
    assert bool((weight > 0.45).all())
