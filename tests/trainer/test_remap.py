"""`python -m trainer remap`, and weights under other names: foreign checkpoints are converted, and run no code."""

import argparse
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.trainer import harness
from trainer.base.errors import CheckpointMismatchError
from trainer.base.signals import StopFlag
from trainer.checkpoints.store import load_checkpoint
from trainer.checkpoints.weights import load_weights, match_weights, strip_wrappers
from trainer.cli import main

WEIGHTS = {"stem.weight": torch.arange(6.0).reshape(2, 3), "head.bias": torch.ones(2)}


def call(*argv: object) -> int:
    return main(["remap", *map(str, argv)], environ={}, stop=StopFlag())


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in WEIGHTS.items()}


def assert_is_weights(path: Path) -> None:
    ours, theirs = load_checkpoint(path)["model"], safetensors.torch.load_file(path)
    assert set(ours) == set(theirs) == set(WEIGHTS)
    for name, tensor in WEIGHTS.items():
        assert torch.equal(ours[name], tensor)
        assert torch.equal(theirs[name], tensor)


FOREIGN: dict[str, Any] = {
    "bare": WEIGHTS,
    "ordered": OrderedDict(WEIGHTS),
    "lightning": {"epoch": 3, "state_dict": WEIGHTS, "optimizer_states": [{"lr": 0.1}]},
    "state": {"epoch": 3, "model_state": WEIGHTS, "optimizer_state": {"state": {0: torch.ones(3)}}},
    "average beside it": {"model": WEIGHTS, "ema": prefixed("ema."), "average": WEIGHTS},
    "average alone": {"params_ema": WEIGHTS, "iteration": 3},
    "empty student": {"student": {}, "teacher": {"state_dict": WEIGHTS}},
    "tutorial": {"epoch": 3, "model_state_dict": WEIGHTS, "loss": 0.5},
    "timm": {"arch": "net", "state_dict": prefixed("module.")},
    "fairseq": {"model": prefixed("module."), "args": None},
    "nested": {"checkpoint": 1, "model": {"state_dict": prefixed("_orig_mod.")}},
    "held": {"state_dict": prefixed("model.module.")},
    "compiled ddp": prefixed("module._orig_mod."),
    "ddp compiled": prefixed("_orig_mod.module."),
    "many": prefixed("model.module._orig_mod.module."),
    "counters": {**WEIGHTS, "iterations": 7},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_checkpoint_becomes_weights_under_their_own_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the state dict is, and whatever prefixes its names have: the same tensors, for us and safetensors."""
    torch.save(FOREIGN[name], tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 0
    assert_is_weights(tmp_path / "new.safetensors")
    assert "2 tensors, 8 values" in capsys.readouterr().out


def test_files_of_the_old_format_and_of_safetensors_are_converted(tmp_path: Path) -> None:
    """Torch's format before zip files, another program's safetensors, and our own checkpoints."""
    torch.save(WEIGHTS, tmp_path / "a", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(prefixed("module."), tmp_path / "b")
    assert call(tmp_path / "a", tmp_path / "a.safetensors") == 0
    assert call(tmp_path / "b", tmp_path / "b.safetensors") == 0
    assert call(tmp_path / "b.safetensors", tmp_path / "c.safetensors") == 0
    for name in "abc":
        assert_is_weights(tmp_path / f"{name}.safetensors")


def test_weights_of_a_run_are_taken_out_of_its_checkpoint(small_run: Path, tmp_path: Path) -> None:
    """Our own step checkpoint: the model alone, without optimizer and random states."""
    step = harness.newest_checkpoint(small_run)
    assert call(step, tmp_path / "new.safetensors") == 0
    assert set(safetensors.torch.load_file(tmp_path / "new.safetensors")) == set(load_checkpoint(step)["model"])


def test_weights_elsewhere_are_named_by_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not in a usual place: the error lists the keys, and --key selects one."""
    torch.save({"actor": {"best": WEIGHTS}, "critic": {}}, tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 2
    assert "its keys are: actor, critic" in capsys.readouterr().err
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors", "--key", "actor/best") == 0
    assert_is_weights(tmp_path / "new.safetensors")


def test_of_several_copies_the_one_that_was_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights before their averages; --key takes another one."""
    other = {name: tensor + 1 for name, tensor in WEIGHTS.items()}
    torch.save({"ema": other, "model": {"state_dict": WEIGHTS}, "model_ema": other, "net": {}}, tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 0
    assert "from model/state_dict (also there, with --key: ema, model_ema)" in capsys.readouterr().out
    assert_is_weights(tmp_path / "new.safetensors")
    assert call(tmp_path / "old.pth", tmp_path / "ema.safetensors", "--key", "ema") == 0
    assert torch.equal(load_checkpoint(tmp_path / "ema.safetensors")["model"]["head.bias"], torch.full((2,), 2.0))


def test_weights_among_the_checkpoints_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remapped file that is named like a step: exit 2, it is named and stays, and its content and a way out too."""
    torch.save(WEIGHTS, tmp_path / "old.pth")
    mine = finished / "checkpoints" / "step-00099999.safetensors"
    assert call(tmp_path / "old.pth", mine) == 0
    assert harness.call(finished, *harness.SMALL, "epochs=3") == 2
    err = capsys.readouterr().err
    assert "step-00099999.safetensors is no checkpoint of a run" in err
    assert "it holds only: model" in err
    assert "--init" in err
    assert_is_weights(mine)


def test_another_program_s_file_among_the_checkpoints_is_set_aside(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A safetensors file that isn't ours, with the name of a step: reported, renamed, and the run goes on."""
    foreign = finished / "checkpoints" / "step-00099999.safetensors"
    safetensors.torch.save_file(WEIGHTS, foreign)
    assert harness.call(finished, *harness.SMALL, "epochs=3") == 0
    out = capsys.readouterr().out
    assert "step-00099999.safetensors does not load" in out
    assert "resumed from step 178" in out
    assert foreign.with_name(f"{foreign.name}.damaged").exists()


def test_names_in_a_strangers_file_do_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in a list of unknown keys, nor in one of left-out entries: they are shown as escapes."""
    attack = "a\x1b[2J\x9b2J\u202eb\nc"
    torch.save({attack: {attack: WEIGHTS}}, tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 2
    torch.save({**WEIGHTS, attack: "text"}, tmp_path / "other.pth")
    assert call(tmp_path / "other.pth", tmp_path / "new.safetensors") == 0
    said = capsys.readouterr()
    assert "a\\x1b[2J\\x9b2J\\u202eb" in said.err
    assert "a\\x1b[2J" in said.out
    assert all(letter.isprintable() or letter == "\n" for letter in said.err + said.out)


class Payload:
    """Runs a command when it is unpickled without protection."""

    def __init__(self, owned: Path) -> None:
        self._owned = owned

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self._owned),))


@pytest.mark.parametrize("kind", ["zip", "old format", "pickle"])
def test_file_that_would_run_code_is_refused_with_the_function_s_name(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, the function's name, nothing executed, nothing written."""
    old, content = tmp_path / "old.pth", {"model": WEIGHTS, "hook": Payload(tmp_path / "owned")}
    if kind == "pickle":
        old.write_bytes(pickle.dumps(content["hook"]))
    else:
        torch.save(content, old, _use_new_zipfile_serialization=kind == "zip")
    assert call(old, tmp_path / "new.safetensors") == 2
    err = capsys.readouterr().err
    assert "was not loaded: that could run code" in err
    assert "loading it would call posix.mkdir" in err
    assert [path.name for path in tmp_path.iterdir()] == ["old.pth"]


def test_environment_that_allows_pickled_code_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Torch's own variable turns the protection off for whoever doesn't ask for it."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save({"model": WEIGHTS, "hook": Payload(tmp_path / "owned")}, tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 2
    assert "loading it would call posix.mkdir" in capsys.readouterr().err
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("version", "is_read"),
    [("2.5.1", False), ("2.5.1+cu124", False), ("1.13.0", False), ("2", False), ("2.6.0", True), ("2.13.0+cpu", True)],
)
def test_pickles_are_not_read_by_a_torch_that_could_run_them(
    version: str, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to 2.5.1 `weights_only` could be bypassed (CVE-2025-32434): there, not even a harmless file is read."""
    torch.save(WEIGHTS, tmp_path / "old.pth")
    monkeypatch.setattr(torch, "__version__", version)
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == (0 if is_read else 2)
    assert ("2.6" in capsys.readouterr().err) is not is_read


def test_harmless_objects_are_refused_by_name_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments stored with the weights, as many training scripts do: named, with a way out."""
    torch.save({"model": WEIGHTS, "args": argparse.Namespace(lr=1)}, tmp_path / "old.pth")
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 2
    err = capsys.readouterr().err
    assert "argparse.Namespace" in err
    assert "torch.save(model.state_dict(), FILE)" in err


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "does not load"), (b"no checkpoint at all", "does not load"), (b"PK\x03\x04broken", "does not load")],
    ids=["empty", "text", "half a zip"],
)
def test_unreadable_file_is_one_clear_error(
    content: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 and three lines."""
    (tmp_path / "old.pth").write_bytes(content)
    assert call(tmp_path / "old.pth", tmp_path / "new.safetensors") == 2
    err = capsys.readouterr().err
    assert why in err
    assert len(err.splitlines()) == 3


def test_nothing_is_overwritten_and_the_name_says_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An existing file, another ending, a missing folder, a missing source: refused."""
    torch.save(WEIGHTS, tmp_path / "old.pth")
    (tmp_path / "there.safetensors").write_text("mine")
    for new in ("there.safetensors", "new.pt", "gone/new.safetensors"):
        assert call(tmp_path / "old.pth", tmp_path / new) == 2
    assert call(tmp_path / "none.pth", tmp_path / "new.safetensors") == 2
    assert (tmp_path / "there.safetensors").read_text() == "mine"
    err = capsys.readouterr().err
    assert all(what in err for what in ("it already exists", "is .safetensors", "No such file"))


def test_inner_wrapper_names_are_removed_and_a_part_named_module_stays() -> None:
    """torch.compile and FSDP inside a model add prefixes; a part of the model with such a name keeps it."""
    inside = {"encoder._orig_mod.weight": torch.ones(1), "head._fsdp_wrapped_module.bias": torch.ones(1)}
    assert set(strip_wrappers(inside)) == {"encoder.weight", "head.bias"}
    own = {"module.weight": torch.ones(1), "head.weight": torch.ones(1)}
    assert set(strip_wrappers(own)) == set(own)


@pytest.mark.parametrize("saved", ["", "module.", "model.module.", "_orig_mod.", "module._orig_mod.module."])
@pytest.mark.parametrize("wanted", ["", "module.", "_orig_mod."])
def test_weights_load_whatever_wraps_them_and_the_model(saved: str, wanted: str) -> None:
    """Any wrapper when they were saved, any when they are loaded."""
    matched = match_weights(prefixed(saved), prefixed(wanted))
    assert set(matched) == set(prefixed(wanted))
    for name, tensor in WEIGHTS.items():
        assert torch.equal(matched[f"{wanted}{name}"], tensor)


def test_weights_load_into_a_model_that_is_compiled_or_wrapped_inside() -> None:
    """Saved from a model with wrapped parts, loaded into a bare one and into one with other wrappers."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    saved = {name.replace("1.", "1._orig_mod.module."): value + 1 for name, value in model.state_dict().items()}
    expected = {name: value + 1 for name, value in model.state_dict().items()}
    load_weights(model, saved)
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    wrapped = nn.DataParallel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    load_weights(wrapped, saved)
    assert torch.equal(wrapped.state_dict()["module.0.weight"], expected["0.weight"])


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({"0.weight": torch.ones(2, 3)}, "missing: 0.bias"),
        ({"0.weight": torch.ones(2, 3), "0.bias": torch.ones(2), "1.bias": torch.ones(2)}, "not in this model: 1.bias"),
        ({"0.weight": torch.ones(2, 4), "0.bias": torch.ones(2)}, "size mismatch for 0.weight"),
    ],
    ids=["missing", "left over", "shape"],
)
def test_weights_of_another_model_are_refused_by_name(weights: dict[str, torch.Tensor], why: str) -> None:
    """One line lists weights that are missing, left over, or of another shape."""
    with pytest.raises(CheckpointMismatchError) as caught:
        load_weights(nn.Sequential(nn.Linear(3, 2)), weights)
    assert why in caught.value.why
    assert "\n" not in caught.value.why
