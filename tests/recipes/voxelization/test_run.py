"""Whole trainings of a small network: figures, samples, ONNX, a resume to the bit, and bad settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.recipes.voxelization.training import SMALL_MODEL, train
from tests.trainer import harness
from trainer.checks.voxelization import Pair
from trainer.generators.voxelization import draw_shell, render_volume
from trainer.metrics.volumes import dice, hausdorff95, intersection_over_union
from trainer.recipes import describe_recipe, find_recipe
from trainer.recipes.voxelization import recipe
from trainer.recipes.voxelization.data import SkullPairs, list_pairs
from trainer.recipes.voxelization.network import SurfaceNet
from trainer.recipes.voxelization.workload import compare, draw, measure, to_function
from trainer.report.samples import encode_sample

# Shape legend: B batch, N points, G nodes a side.
SAMPLES = {"bone.npz", "points.ply", "normals.npy", "slices.png"}


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, with samples and ONNX."""
    output = tmp_path_factory.mktemp("run") / "output"
    assert train(made, output, "onnx=true", "samples.every_epochs=2") == 0
    return output


@pytest.fixture(scope="module")
def network(finished: Path) -> SurfaceNet:
    """The best network of that run."""
    network = SurfaceNet(SMALL_MODEL, grid=16, sigma=2.0).eval()
    network.load_state_dict(load_file(finished / "model.safetensors"))
    return network


@pytest.fixture(scope="module")
def batch(made: Path) -> dict[str, torch.Tensor]:
    """The five held-out pairs, as the validation draws them."""
    _, evaluation = list_pairs(made, 0.2)
    samples = [SkullPairs(evaluation, grid=16).sample(number, np.random.default_rng(0)) for number in range(5)]
    return {name: torch.stack([sample[name] for sample in samples]) for name in ("points", "bone")}


def test_defaults_are_those_of_the_run_on_eight_gpus() -> None:
    """Batch 4, 1,300 epochs, 8 workers, a checkpoint every 5 and a validation every 10; 5e-4 at batch 2 gives 1e-3."""
    settings = recipe().settings
    assert (settings.epochs, settings.batch_size, settings.workers) == (1300, 4, 8)
    assert (settings.checkpoint.every_epochs, settings.validate.every_epochs) == (5, 10)
    optimizer = settings.optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.base_batch, optimizer.scaling) == (
        "adam",
        5e-4,
        2,
        "linear",
    )
    assert "Skulls out of point clouds" in describe_recipe(find_recipe("voxelization"))


def test_rate_of_the_default_batch_is_said(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scaled from the paper's."""
    assert train(made, tmp_path / "output", "batch_size=4", "max_steps=1") == 0
    assert "learning rate 0.001: 0.0005 at a batch of 2, scaled to 4 (linear)" in capsys.readouterr().out


def test_validation_rows_have_all_measures(finished: Path) -> None:
    """The best weights are those with the least squared difference, as in the original."""
    rows = [row for row in harness.read_rows(finished) if "val_loss" in row]
    assert [row["epoch"] for row in rows] == [1, 2]
    for name in ("val_psr_l2", "val_dice", "val_iou", "val_hd95"):
        assert all(np.isfinite(row[name]) for row in rows)
    (best,) = (finished / "checkpoints").glob("best-*")
    least = min(rows, key=lambda row: row["val_psr_l2"])
    assert best.name == f"best-{least['step']:08d}.safetensors"


def test_measures_are_those_of_the_networks_output(network: SurfaceNet, batch: dict[str, torch.Tensor]) -> None:
    """In float64, one sample after another; HD95 in voxels of the original's 512."""
    with torch.no_grad():
        found = measure(network, batch)
        predicted_BGGG = network(batch["points"])
        loss = compare(network, batch).item()
    target_BGGG = to_function(batch["bone"]).double()
    for number, (predicted, target) in enumerate(zip(predicted_BGGG.double(), target_BGGG, strict=True)):
        p, t = predicted.numpy(), target.numpy()
        assert found["loss"][number].item() == pytest.approx(((np.tanh(p) - np.tanh(t)) ** 2).mean(), rel=1e-5)
        assert found["psr_l2"][number].item() == pytest.approx(((p - t) ** 2).mean(), rel=1e-5)
        inside, bone = predicted < 0, target < 0
        assert found["dice"][number] == dice(inside[None], bone[None])[0]
        assert found["iou"][number] == intersection_over_union(inside[None], bone[None])[0]
        assert found["hd95"][number].item() == pytest.approx(32 * hausdorff95(inside, bone).item())
    assert loss == pytest.approx(found["loss"].mean().item(), rel=1e-5)
    assert "hd95" not in measure(network, batch, hausdorff=False)


def test_samples_are_the_volume_and_the_points_of_a_held_out_skull(
    finished: Path, made: Path, network: SurfaceNet
) -> None:
    """Also their normals, and a picture: bone is bright, predicted above and true below."""
    folder = finished / "samples" / "epoch-000002"
    assert {path.name for path in folder.iterdir()} == {*SAMPLES, "volume.npz"}
    _, evaluation = list_pairs(made, 0.2)
    volume_GGG, normals_M3 = np.load(folder / "volume.npz")["data"], np.load(folder / "normals.npy")
    assert volume_GGG.shape == (16, 16, 16)
    header, _, body = (folder / "points.ply").read_bytes().partition(b"end_header\n")
    points_M3 = np.frombuffer(body, "<f4").reshape(-1, 3)
    assert f"element vertex {len(points_M3)}".encode() in header
    rebuilt_GGG = network.solver(torch.tensor(points_M3)[None], torch.tensor(normals_M3)[None])[0]
    assert np.allclose(rebuilt_GGG.numpy(), volume_GGG, atol=1e-4)
    assert np.array_equal(np.load(folder / "bone.npz")["data"], volume_GGG < 0)
    bone_GGG = SkullPairs(evaluation, grid=16).sample(0, np.random.default_rng(0))["bone"].numpy()
    with Image.open(folder / "slices.png") as picture:
        pixels_HW = np.asarray(picture)
    assert pixels_HW.shape == (512, 768)
    expected_HW = np.concatenate([bone_GGG[8], bone_GGG[:, 8], bone_GGG[:, :, 8]], 1)
    assert np.array_equal(pixels_HW[256::16, ::16] > 127, expected_HW)


def test_samples_of_fine_volumes_are_small(made: Path, tmp_path: Path) -> None:
    """The function's floats hardly compress: at 512 nodes they are half a gigabyte, 26 times in a run."""
    shell = draw_shell(np.random.default_rng(5))
    volume = tmp_path / "000_bilateral_vox.npz"
    np.savez(volume, psr=render_volume(shell, 160))
    pair = Pair(name="000_bilateral", points=made / "000_bilateral_pc.npz", volume=volume)
    network = SurfaceNet(SMALL_MODEL, grid=160, sigma=2.0).eval()
    samples = draw(network, SkullPairs([pair], grid=160, points=4_000))
    assert samples.keys() == SAMPLES
    sizes = {name: len(encode_sample(name, value)) for name, value in samples.items()}
    assert sizes["bone.npz"] < 0.1 * 160**3
    assert set(np.unique(samples["bone.npz"])) == {0, 1}


def test_onnx_file_reconstructs_skulls(finished: Path, network: SurfaceNet, batch: dict[str, torch.Tensor]) -> None:
    """Fourier transforms and all, for any number of clouds."""
    session = onnxruntime.InferenceSession(str(finished / "model.onnx"), providers=["CPUExecutionProvider"])
    points_BN3 = batch["points"][:3, :: batch["points"].shape[1] // 64][:, :64].contiguous()
    (found,) = session.run(None, {"input": points_BN3.numpy()})
    with torch.no_grad():
        expected_BGGG = network(points_BN3)
    assert np.abs(found - expected_BGGG.numpy()).max() < 1e-3 * expected_BGGG.abs().max()


def test_stopped_run_resumes_to_the_bit(made: Path, tmp_path: Path) -> None:
    """Drawn points and noise depend on seed, epoch and sample alone, and volumes are the same from a cache."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    settings = ("data.noise=0.001", "hausdorff=false")
    assert train(made, whole, *settings) == 0
    assert train(made, halves, *settings, stop=harness.StopAtLook(3)) == 0
    assert harness.read_status(halves)["state"] == "stopped"
    assert train(made, halves, *settings, f"data.cache={tmp_path / 'cache'}") == 0
    assert list((tmp_path / "cache").rglob("*.npy"))
    harness.assert_same_run(halves, whole)


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("poisson.grid=20", "poisson.grid=20 doesn't fit these data"),
        ("model.cells=3", "model.cells=3 doesn't fit model.levels=2"),
        ("data.folder=/nowhere", "/nowhere can't be used"),
    ],
)
def test_settings_that_dont_fit_are_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, what: str
) -> None:
    """Exit 2, before anything is written."""
    assert train(made, tmp_path / "output", setting) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "output" / "metrics.jsonl").exists()


def test_network_has_two_levels_that_can_be_recomputed(made: Path, tmp_path: Path) -> None:
    """Gradient checkpointing changes nothing but memory."""
    outputs = [tmp_path / name for name in ("plain", "recomputed")]
    for output, setting in zip(outputs, ("false", "true"), strict=True):
        settings = (f"compute.gradient_checkpointing={setting}", "hausdorff=false", "epochs=1")
        assert train(made, output, *settings) == 0
    plain, recomputed = (load_file(output / "model.safetensors") for output in outputs)
    assert all(torch.allclose(plain[name], recomputed[name], atol=1e-6) for name in plain)
