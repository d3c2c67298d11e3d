"""What only a GPU can show: queued copies, rounding of TF32, the largest batch, the same bits twice, its memory."""

import pickle
import time
from pathlib import Path

import pytest
import torch

from tests.trainer import harness
from tests.trainer.gpu.features import FITTING, build, largest_difference, train
from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.recipe import Recipe
from trainer.checkpoints.loading import load
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.store import CheckpointStore
from trainer.find.finders import find_micro_batch
from trainer.group.distributed import ALONE

# Shape legend: F features.
SLEEP_CYCLES = 2_000_000_000
"""About a second at 1 to 2 GHz."""
TF32_SINCE = 8
"""The compute capability, Ampere's."""


def test_save_neither_waits_for_the_device_nor_sees_the_next_step(tmp_path: Path) -> None:
    """Under a kernel of a second `save` returns at once, and the file has the weights from before the next update."""
    weights_F = torch.zeros(1_000_000, device="cuda")
    weights_F.add_(1).zero_()  # CUDA loads a kernel when it is first used, and may wait for the device to do so
    saver = Saver(CheckpointStore(tmp_path, keep=1, fingerprint={}), device=torch.device("cuda", 0))
    saver.reserve({"model": {"weights": weights_F}})
    saver.wait()
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    weights_F.add_(1)
    began = time.perf_counter()
    saver.save(TrainingSnapshot(step=1, state={"model": {"weights": weights_F}}))
    weights_F.add_(1)
    is_idle = torch.cuda.current_stream().query()
    took = time.perf_counter() - began
    saver.wait()
    saver.close()
    (path,) = tmp_path.glob("step-*")
    assert torch.equal(load(path, ALONE)["model"]["weights"], torch.ones(1_000_000))
    assert not is_idle
    assert took < 0.3


@pytest.mark.parametrize(("case", "is_rounded"), [((), False), (("tf32",), True)], ids=["off", "on"])
def test_tf32_is_on_only_if_asked_for(case: tuple[str, ...], is_rounded: bool, tmp_path: Path) -> None:
    """In products and in convolutions, after a run has set it: 10 bits of mantissa, or 23."""
    if torch.version.hip or torch.cuda.get_device_capability()[0] < TF32_SINCE:
        is_rounded = False
    train(case, tmp_path / "output")
    generator = torch.Generator("cuda").manual_seed(0)
    left = torch.randn(512, 512, device="cuda", generator=generator)
    right = torch.randn(512, 512, device="cuda", generator=generator)
    exact = left.double() @ right.double()
    product_error = float((left @ right - exact).abs().max() / exact.abs().max())
    conv = torch.conv2d(left.view(1, 512, 512, 1), right.view(512, 512, 1, 1)).view(512, 512)
    exact = right.double() @ left.double()
    conv_error = float((conv - exact).abs().max() / exact.abs().max())
    assert (product_error > 5e-5) is is_rounded
    assert (conv_error > 5e-5) is is_rounded


def test_find_batch_returns_to_what_fits_and_frees_the_rest(tmp_path: Path) -> None:
    """Larger sizes really run out of memory; afterwards the device's memory is free again."""
    recipe = Recipe(settings=Settings(batch_size=8), build=lambda _: build(("out_of_memory",)))
    said: list[str] = []
    assert find_micro_batch(recipe, read_contract({}, output_dir=tmp_path), said.append, most=32) == FITTING
    assert torch.cuda.memory_reserved() < 1 << 30
    assert f"--set micro_batch={FITTING}" in said[-1]


def test_deterministic_run_has_the_same_bits_twice(tmp_path: Path) -> None:
    """All of the weights, and all of the losses."""
    first, second = (train(("deterministic",), tmp_path / name) for name in ("first", "second"))
    assert largest_difference(first, second) == 0
    assert first.losses == second.losses


def test_profile_has_kernels_and_a_snapshot_of_the_memory(tmp_path: Path) -> None:
    """The trace shows the device beside the loop; the snapshot has the allocations of these steps."""
    train(("profile",), tmp_path)
    snapshot = pickle.loads((tmp_path / "profile" / "steps-2-3.memory.pickle").read_bytes())
    assert any(snapshot["device_traces"])
    assert harness.read_status(tmp_path)["state"] == "succeeded"
