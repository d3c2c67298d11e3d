"""Pairs of a cloud and a volume: which are for training, and what a sample is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from trainer.base.errors import BadRequestError
from trainer.checks.voxelization import hold_out
from trainer.generators.voxelization import draw_defect, draw_shell, is_bone, render_volume, sample_points
from trainer.recipes.voxelization.data import SkullPairs, list_pairs, read_grid_size, read_points, read_volume
from trainer.recipes.voxelization.workload import to_function

# Shape legend: N points, G nodes a side.


def rng(seed: int = 0) -> np.random.Generator:
    """Make a generator."""
    return np.random.default_rng(seed)


def test_all_defects_of_a_skull_are_on_one_side(made: Path) -> None:
    """The last skulls are held out; each side has at least one."""
    train, evaluation = list_pairs(made, 0.01)
    assert {pair.skull for pair in train} == {"000"}
    assert {pair.skull for pair in evaluation} == {"001"}
    assert len(train) == len(evaluation) == 5
    pairs = {pair.name: pair for pair in [*train, *evaluation]}
    assert [len(side) for side in hold_out(pairs, 0.99)] == [5, 5]


def test_lists_choose_the_pairs(data: Path) -> None:
    """As the original's split scripts write them, with the folder of another computer."""
    (data / "train.csv").write_text("datasets/SkullBreak/voxelization/000_bilateral\nx/001_random_2\n")
    (data / "eval.csv").write_text("x/000_random_1\n")
    train, evaluation = list_pairs(data, 0.2)
    assert [pair.name for pair in train] == ["000_bilateral", "001_random_2"]
    assert [pair.name for pair in evaluation] == ["000_random_1"]
    (data / "eval.csv").write_text("x/009_random_1\n")
    with pytest.raises(BadRequestError, match=r"eval\.csv can't be used") as caught:
        list_pairs(data, 0.2)
    assert "009_random_1, which is not there" in caught.value.why


def test_a_pair_on_both_sides_is_refused(data: Path) -> None:
    """Its error would say nothing about other skulls."""
    for name in ("train.csv", "eval.csv"):
        (data / name).write_text("x/000_bilateral\nx/001_random_2\n")
    with pytest.raises(BadRequestError, match=r"eval\.csv can't be used") as caught:
        list_pairs(data, 0.2)
    assert caught.value.why == "000_bilateral is in train.csv as well"


@pytest.mark.parametrize(("there", "absent"), [("train.csv", "eval.csv"), ("eval.csv", "train.csv")])
def test_one_list_without_the_other_is_refused(data: Path, there: str, absent: str) -> None:
    """It would be ignored, and other pairs be held out than those that the list's author meant."""
    (data / there).write_text("x/000_bilateral\n")
    with pytest.raises(BadRequestError, match=rf"{absent} can't be used") as caught:
        list_pairs(data, 0.2)
    assert "the other list is there" in caught.value.why


def test_incomplete_pairs_are_refused(data: Path, tmp_path: Path) -> None:
    """With the command that lists all of them."""
    (data / "000_bilateral_vox.npz").unlink()
    with pytest.raises(BadRequestError) as caught:
        list_pairs(data, 0.2)
    assert caught.value.why == "of 1 of 10 pairs one file is missing"
    assert "trainer check voxelization" in caught.value.fix
    with pytest.raises(BadRequestError):
        list_pairs(tmp_path / "nothing", 0.2)


def test_sample_is_what_the_files_hold(made: Path) -> None:
    """All points, and the volume at the grid's nodes: every second one of a volume that is twice as fine."""
    (pair, *_), _ = list_pairs(made, 0.2)
    points_N3, psr_GGG = np.load(pair.points)["points"], np.load(pair.volume)["psr"]
    assert read_grid_size(pair.volume) == 32
    sample = SkullPairs([pair], grid=32).sample(0, rng())
    assert np.array_equal(sample["points"].numpy(), points_N3)
    assert np.array_equal(to_function(sample["bone"]).numpy(), psr_GGG)
    every_second = SkullPairs([pair], grid=16).sample(0, rng())["bone"]
    assert np.array_equal(to_function(every_second).numpy(), psr_GGG[::2, ::2, ::2])
    assert every_second.element_size() == 1, "loaders carry a byte a node, not four"
    with pytest.raises(BadRequestError, match="can't be used") as caught:
        read_volume(pair.volume, 24)
    assert "no multiple of poisson.grid=24" in caught.value.why


def test_points_are_drawn_anew_each_time(made: Path) -> None:
    """From the generator alone; with noise, if wanted, also only from it."""
    (pair, *_), _ = list_pairs(made, 0.2)
    source = SkullPairs([pair], grid=32, points=100, noise=0.01)
    first, again, other = (source.sample(0, rng(seed))["points"] for seed in (0, 0, 1))
    assert first.shape == (100, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    exact = SkullPairs([pair], grid=32, points=100).sample(0, rng())["points"]
    assert 0.008 < (first - exact).std() < 0.012


@pytest.mark.parametrize("grid", [32, 4])
def test_volumes_are_decoded_once_and_kept_as_bits(data: Path, tmp_path: Path, grid: int) -> None:
    """Also for another process, which has a source of its own; another file of the same name is decoded anew."""
    cache = tmp_path / "cache"
    (pair, *_), _ = list_pairs(data, 0.2)
    decoded = SkullPairs([pair], grid=grid).sample(0, rng())["bone"]
    first = SkullPairs([pair], grid=grid, cache=cache).sample(0, rng())["bone"]
    stat = pair.volume.stat()
    pair.volume.write_bytes(bytes(stat.st_size))  # what can't be decoded any more
    os.utime(pair.volume, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = SkullPairs([pair], grid=grid, cache=cache).sample(0, rng())["bone"]
    assert torch.equal(first, decoded)
    assert torch.equal(second, decoded)
    assert second.dtype == torch.bool
    (kept,) = cache.rglob("*.npy")
    assert kept.stat().st_size == 128 + grid * grid * max(1, grid // 8)
    np.savez(pair.volume, psr=np.full((32, 32, 32), 0.5, np.float32))
    assert not SkullPairs([pair], grid=grid, cache=cache).sample(0, rng())["bone"].any()


@pytest.mark.parametrize("content", [np.array([{}]), np.zeros((4, 4, 9), np.uint8), np.zeros((4, 4), np.uint8)])
def test_kept_volumes_that_are_something_else_are_refused(data: Path, tmp_path: Path, content: NDArray[Any]) -> None:
    """A cache may lie on a disk that others write: no code is run, and no other shape is trained on."""
    (pair, *_), _ = list_pairs(data, 0.2)
    source = SkullPairs([pair], grid=4, cache=tmp_path / "cache")
    source.sample(0, rng())
    for kept in (tmp_path / "cache").rglob("*.npy"):
        np.save(kept, content)
    with pytest.raises(BadRequestError, match="can't be used"):
        source.sample(0, rng())


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_either_order_are_read(tmp_path: Path, order: str) -> None:
    """NumPy writes an array as it lies in memory."""
    points_N3, psr_GGG = rng().random((50, 3)), rng().choice(np.array([-0.5, 0.5], dtype=np.float32), (8, 8, 8))
    np.savez(tmp_path / "pc.npz", points=np.asarray(points_N3, order=order))  # type: ignore[call-overload]
    np.savez_compressed(tmp_path / "vox.npz", psr=np.asarray(psr_GGG, order=order))  # type: ignore[call-overload]
    assert np.array_equal(read_points(tmp_path / "pc.npz"), points_N3.astype(np.float32))
    assert np.array_equal(read_volume(tmp_path / "vox.npz", 4), psr_GGG[::2, ::2, ::2] < 0)


@pytest.mark.parametrize(
    "points",
    [np.full((10, 3), 256.0), np.full((10, 3), -0.1), np.full((10, 3), np.nan), np.zeros((10, 2)), np.array([{}])],
)
def test_clouds_that_would_train_on_nonsense_are_refused(tmp_path: Path, points: NDArray[Any]) -> None:
    """Not divided by 512, NaN, of another shape, or pickled."""
    np.savez(tmp_path / "pc.npz", points=points)
    with pytest.raises(BadRequestError, match=r"pc\.npz can't be used"):
        read_points(tmp_path / "pc.npz")


@pytest.mark.parametrize("value", [0.0, 0.25, -1.0, np.nan])
def test_volumes_with_other_values_are_refused(tmp_path: Path, value: float) -> None:
    """Only the sign is kept, so that anything else would be lost without a word."""
    psr_GGG = np.full((8, 8, 8), 0.5, dtype=np.float32)
    psr_GGG[2, 4, 6] = value
    np.savez(tmp_path / "vox.npz", psr=psr_GGG)
    with pytest.raises(BadRequestError, match=r"vox\.npz can't be used") as caught:
        read_volume(tmp_path / "vox.npz", 4)
    assert "-0.5 inside and 0.5 outside" in caught.value.why


def test_generated_points_lie_on_the_surface_of_the_generated_volume() -> None:
    """The skull's own points and the implant's, which are the last tenth; every point has bone and air near it."""
    shell = draw_shell(rng(5))
    points_N3 = sample_points(shell, draw_defect(rng(6)), rng(7))
    assert points_N3.shape == (30_720, 3)
    assert 0 < points_N3.min() < points_N3.max() < 1
    steps = 0.004 * np.stack(np.meshgrid(*[[-1, 0, 1]] * 3), -1).reshape(-1, 3)
    near = np.stack([is_bone(shell, points_N3 + step) for step in steps])
    is_mixed_N = np.asarray(near.any(0) & ~near.all(0))
    # A wall around the defect is a surface of both parts, with bone of the complete skull on either side.
    assert is_mixed_N[: 27_648 // 2].all()
    assert is_mixed_N.mean() > 0.9


def test_generated_volumes_have_the_two_values_of_the_original() -> None:
    """-0.5 in bone and +0.5 elsewhere; the corner is outside. The same seed gives the same skull."""
    volume_GGG = render_volume(draw_shell(rng(5)), 32)
    assert set(np.unique(volume_GGG)) == {-0.5, 0.5}
    assert volume_GGG.dtype == np.float32
    assert volume_GGG[0, 0, 0] == 0.5
    assert 0.03 < (volume_GGG < 0).mean() < 0.3
    assert np.array_equal(volume_GGG, render_volume(draw_shell(rng(5)), 32))
