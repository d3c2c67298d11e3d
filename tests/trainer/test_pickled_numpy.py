"""NumPy's arrays and numbers in files of torch.save: left out, without a call of NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from trainer.base.errors import BadRequestError
from trainer.checkpoints.pickled import LeftOut, read_pickled
from trainer.checkpoints.remap import remap

WEIGHTS = {"stem.weight": torch.arange(6.0).reshape(2, 3), "head.bias": torch.ones(2)}


def test_arrays_and_numbers_beside_the_weights_are_left_out(tmp_path: Path) -> None:
    """As random states and accuracies, which many trainers save."""
    beside = {"accuracy": np.float64(0.7), "empty": np.zeros(0), "epoch": np.int64(3), "losses": np.arange(3.0)}
    state = {"rng": np.random.get_state(), **beside, "state_dict": WEIGHTS}
    torch.save(state, tmp_path / "old.pth")
    remap(tmp_path / "old.pth", tmp_path / "new.safetensors")
    written = safetensors.torch.load_file(tmp_path / "new.safetensors")
    assert written.keys() == WEIGHTS.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in WEIGHTS.items())
    content = read_pickled(tmp_path / "old.pth")
    assert all(isinstance(content[name], LeftOut) for name in beside)
    assert content["rng"][0] == "MT19937"


def test_files_of_numpy_1_are_read(tmp_path: Path) -> None:
    """It has its functions in numpy.core."""
    torch.save(
        {"losses": np.arange(3.0), "state_dict": WEIGHTS}, tmp_path / "new.pth", _use_new_zipfile_serialization=False
    )
    content = (tmp_path / "new.pth").read_bytes()
    (tmp_path / "old.pth").write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert isinstance(read_pickled(tmp_path / "old.pth")["losses"], LeftOut)


def test_other_functions_of_numpy_are_refused(tmp_path: Path) -> None:
    class Reads:
        def __reduce__(self) -> tuple[Any, ...]:
            return np.loadtxt, (str(tmp_path / "old.pth"),)

    torch.save({"state_dict": WEIGHTS, "rng": Reads()}, tmp_path / "old.pth")
    with pytest.raises(BadRequestError, match="could run code") as caught:
        remap(tmp_path / "old.pth", tmp_path / "new.safetensors")
    assert "numpy.loadtxt" in caught.value.why


def test_weights_that_are_numpys_are_none(tmp_path: Path) -> None:
    """They aren't taken for weights, and the message has the keys."""
    torch.save({"state_dict": {"w": np.ones(3)}}, tmp_path / "old.pth")
    with pytest.raises(BadRequestError, match="no weights were found"):
        remap(tmp_path / "old.pth", tmp_path / "new.safetensors")
