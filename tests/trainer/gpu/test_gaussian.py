"""The renderer of the recipe `gaussian` adds up gradients in parallel: resumed, it has the same bits only if asked."""

from pathlib import Path

from tests.recipes.gaussian.scenes import train, write_scenes
from tests.trainer import harness


def test_gaussians_resume_to_the_bit_with_compute_deterministic(tmp_path: Path) -> None:
    """With HFTS, which draws Gaussians on the device."""
    data = write_scenes(tmp_path / "data", 12)
    sizes = ("epochs=4", "batch_size=4", "model.gaussians_per_patch=2", "hfts.pixels=16", "hfts.kept=200")
    settings = (*sizes, "hfts.enabled=true", "compute.deterministic=true")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert train(whole, data, *settings) == 0
    assert train(halves, data, *settings, stop=harness.StopAtLook(6)) == 0
    assert harness.read_status(halves)["state"] == "stopped"
    assert train(halves, data, *settings) == 0
    harness.assert_same_run(halves, whole)
