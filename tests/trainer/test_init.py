"""`--init`: a new run whose model starts from weights in a file."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trainer import harness
from trainer.checkpoints.store import load_checkpoint
from trainer.recipes.digits import SmallResNet
from trainer.start.fit import fit_weights

# A rate of almost 0: the weights at the end are those at the start.
FROZEN = (
    "epochs=1",
    "batch_size=64",
    "model.width=6",
    "optimizer.learning_rate=1e-12",
    "schedule.warmup_steps=0",
    "curves=false",
    "onnx=false",
)


class RunsCode:
    """What a stranger's file may hold: unpickling it would call a function."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("ran",)


def trained(folder: Path) -> dict[str, torch.Tensor]:
    """Return the parameters of a run's newest checkpoint; running statistics change in any case."""
    state: dict[str, torch.Tensor] = load_checkpoint(harness.newest_checkpoint(folder))["model"]
    return {name: tensor for name, tensor in state.items() if "running" not in name and "num_batches" not in name}


def is_near(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)


def test_run_starts_from_the_weights_of_a_file_and_says_so(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At step 0, with all tensors; the line is printed, and the model card has it."""
    weights = load_file(small_run / "model.safetensors")
    folder = tmp_path / "output"
    assert harness.call(folder, *FROZEN, flags=("--init", small_run / "model.safetensors")) == 0
    assert is_near(trained(folder), weights)
    assert harness.read_status(folder)["step"] == 22
    assert f"started from model.safetensors: {len(weights)} tensors loaded" in capsys.readouterr().out
    assert "Started from `model.safetensors`." in (folder / "README.md").read_text()


def test_average_of_the_weights_starts_from_them_too(small_run: Path, tmp_path: Path) -> None:
    """After one step, a tenth of the EMA is what it started from: it is not the random weights."""
    weights = load_file(small_run / "model.safetensors")
    folder = tmp_path / "output"
    assert (
        harness.call(
            folder, *FROZEN, "batch_size=1000", "ema_decay=0.999", flags=("--init", small_run / "model.safetensors")
        )
        == 0
    )
    average = load_checkpoint(harness.newest_checkpoint(folder))["average"]
    assert is_near({name: average[name] for name in trained(folder)}, weights)


def test_weights_that_dont_fit_are_refused_with_their_names_and_nothing_is_changed(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another shape, one missing, one left over: exit 2, and no folder is made."""
    weights = load_file(small_run / "model.safetensors")
    weights["classifier.weight"] = torch.zeros(3, 12)
    weights["other.bias"] = weights.pop("classifier.bias")
    save_file(weights, tmp_path / "other.safetensors")
    folder = tmp_path / "output"
    assert harness.call(folder, *FROZEN, flags=("--init", tmp_path / "other.safetensors")) == 2
    err = capsys.readouterr().err
    assert "1 missing: classifier.bias" in err
    assert "1 not in this model: other.bias" in err
    assert "1 of another shape: classifier.weight 3x12 instead of 10x12" in err
    assert "--loosely" in err
    assert not folder.exists()


def test_loosely_loads_what_fits_and_says_what_doesnt(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new head on old features: the head is the model's own, the rest is the file's."""
    weights = load_file(small_run / "model.safetensors")
    weights["classifier.weight"] = torch.zeros(3, 12)
    save_file(weights, tmp_path / "other.safetensors")
    folder = tmp_path / "output"
    assert harness.call(folder, *FROZEN, flags=("--init", tmp_path / "other.safetensors", "--loosely")) == 0
    line = f"{len(weights) - 1} tensors loaded, not the others: 1 of another shape: classifier.weight 3x12"
    assert line in capsys.readouterr().out
    ours = trained(folder)
    assert ours.pop("classifier.weight").shape == (10, 12)
    assert is_near(ours, weights)


def test_loosely_refuses_a_file_of_which_nothing_fits(tmp_path: Path) -> None:
    """It would train from nothing, although the user asked for weights."""
    save_file({"a.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    folder = tmp_path / "output"
    assert harness.call(folder, *FROZEN, flags=("--init", tmp_path / "other.safetensors", "--loosely")) == 2
    assert not folder.exists()


def test_file_of_torch_save_is_read_at_a_key_without_its_wrappers(small_run: Path, tmp_path: Path) -> None:
    """A DDP prefix below a key of the script's own."""
    weights = load_file(small_run / "model.safetensors")
    content = {"nets": {"teacher": {f"module.{name}": tensor for name, tensor in weights.items()}}, "epoch": 3}
    torch.save(content, tmp_path / "theirs.pt")
    folder = tmp_path / "output"
    assert harness.call(folder, *FROZEN, flags=("--init", tmp_path / "theirs.pt", "--key", "nets/teacher")) == 0
    assert is_near(trained(folder), weights)


def test_file_that_would_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2, and the code did not run."""
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"a": torch.zeros(1)}, "extra": RunsCode()}, tmp_path / "theirs.pt")
    assert harness.call(tmp_path / "output", *FROZEN, flags=("--init", tmp_path / "theirs.pt")) == 2
    assert "could run code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "output").exists()


def test_same_command_resumes_and_ignores_the_weights(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped and started again: the same bits as without the stop, although the file is gone by then."""
    file = tmp_path / "model.safetensors"
    file.write_bytes((small_run / "model.safetensors").read_bytes())
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false", "log_every_steps=1")
    assert harness.call(whole, *settings, flags=("--init", file)) == 0
    assert harness.call(stopped, *settings, flags=("--init", file), stop=harness.StopAtLook(9)) == 0
    file.unlink()
    capsys.readouterr()
    assert harness.call(stopped, *settings, flags=("--init", file)) == 0
    assert "--init is ignored: this run has a checkpoint" in capsys.readouterr().out
    harness.assert_same_run(stopped, whole)
    assert "Started from `model.safetensors`." in (stopped / "README.md").read_text()


def test_weights_fit_below_the_holders_of_common_scripts() -> None:
    """`model.`, `module.`, both, and none, in either direction; what doesn't belong to the model is told apart."""
    wanted = SmallResNet(width=6, dropout=0.0).state_dict()
    for prefix in ("", "module.", "model.", "model.module."):
        assert fit_weights({f"{prefix}{name}": tensor for name, tensor in wanted.items()}, wanted).is_whole, prefix
    held = {f"model.{name}": tensor for name, tensor in wanted.items()}
    assert fit_weights(wanted, held).is_whole
    beside = fit_weights({**held, "loss.weight": torch.zeros(3)}, wanted)
    assert (beside.left_over, beside.missing, len(beside.fitting)) == (("loss.weight",), (), len(wanted))


def test_flags_that_contradict_or_belong_to_no_other_are_refused(small_run: Path, tmp_path: Path) -> None:
    """Two answers to one question, and answers to none: a flag is never ignored silently."""
    file = small_run / "model.safetensors"
    for flags in (
        ("--init", file, "--from", small_run),
        ("--loosely",),
        ("--from", small_run, "--loosely"),
        ("--init", file, "--epochs-done", "3"),
        ("--from", small_run, "--epochs-done", "3"),
        ("--from", small_run, "--epochs-done", "-1"),
        ("--key", "model"),
    ):
        assert harness.call(tmp_path / "output", *FROZEN, flags=flags) == 2, flags
        assert not (tmp_path / "output").exists(), flags
