"""`python -m trainer check gaussian` and `generate gaussian`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.recipes.gaussian.scenes import write_scenes
from trainer.api import BadRequestError, Subset
from trainer.base.overrides import apply_overrides
from trainer.checks import check_data
from trainer.generators import generate_data
from trainer.generators.gaussian import draw_blobs, paint
from trainer.recipes.gaussian.data import SceneFolder
from trainer.recipes.gaussian.settings import DataSettings
from trainer.recipes.gaussian.workload import build_workload, recipe


def test_whole_data_are_counted(tmp_path: Path) -> None:
    """Fresnel's documentation counts 500 .jpg and 1,000 .bin."""
    found = check_data("gaussian", write_scenes(tmp_path, 20, width=4))
    assert not found, found.render()
    assert found.counts == {"pictures": 20, "files of features of DINOv2 small": 20, "depths": 20}
    assert found.training_samples == 18  # a tenth is held out


def test_batch_of_512_leaves_no_step_of_500_pictures(tmp_path: Path) -> None:
    """`custom 100 512 256`."""
    found = check_data("gaussian", write_scenes(tmp_path, 20, width=4))
    found.require_steps(18)
    assert not found
    found.require_steps(19)
    assert "too few" in found.problems


@pytest.mark.parametrize(("pictures", "most"), [(20, 0), (20, 15), (20, 7), (12, 50), (20, 25)])
def test_training_samples_are_those_of_the_run(tmp_path: Path, pictures: int, most: int) -> None:
    """Also where it uses only the first pictures: some of these are held out."""
    folder = write_scenes(tmp_path, pictures, width=4)
    settings = apply_overrides(recipe().settings, [f"data.folder={folder}", f"data.max_images={most}"])
    data = build_workload(settings).train_data
    assert isinstance(data, Subset)
    assert check_data("gaussian", folder, max_samples=most).training_samples == len(data)


def test_samples_that_a_recipe_cannot_leave_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="pcdiff"):
        check_data("pcdiff", tmp_path, max_samples=3)
    with pytest.raises(BadRequestError, match="negative"):
        check_data("gaussian", tmp_path, max_samples=-1)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def resize(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size].ljust(size, b"\0"))


def rename(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / old).rename(folder / new)


def remove_features(folder: Path) -> None:
    for path in folder.glob("features/*_dinov2.bin"):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "kind", "path"),
    [
        (remove("features/001_dinov2.bin"), "missing", "features/001_dinov2.bin"),
        (remove("features/001_depth.bin"), "missing", "features/001_depth.bin"),
        (remove_features, "missing", "features"),
        (resize("features/002_dinov2.bin", 100), "truncated", "features/002_dinov2.bin"),
        (resize("features/002_dinov2.bin", 0), "truncated", "features/002_dinov2.bin"),
        (resize("features/002_dinov2.bin", 4 * 37 * 37 * 3), "mis-shaped", "features/002_dinov2.bin"),
        (resize("features/002_dinov2.bin", 4 * 37 * 37 * 4 + 4), "mis-shaped", "features/002_dinov2.bin"),
        (resize("features/002_depth.bin", 262_143), "truncated", "features/002_depth.bin"),
        (resize("features/002_depth.bin", 262_148), "mis-shaped", "features/002_depth.bin"),
        (resize("003.jpg", 300), "truncated", "003.jpg"),
        (lambda folder: (folder / "003.jpg").write_text("<html>not found</html>"), "unreadable", "003.jpg"),
        (rename("features/001_depth.bin", "features/1_depth.bin"), "misnamed", "features/1_depth.bin"),
        (rename("features/001_dinov2.bin", "001_dinov2.bin"), "misnamed", "001_dinov2.bin"),
        (lambda folder: (folder / "003.jpeg").write_bytes((folder / "003.jpg").read_bytes()), "misnamed", "003.jpg"),
    ],
)
def test_each_problem_is_found(tmp_path: Path, spoil: Callable[[Path], object], kind: str, path: str) -> None:
    """By its kind and its file."""
    folder = write_scenes(tmp_path, 5, width=4)
    spoil(folder)
    problems = check_data("gaussian", folder).problems
    assert path in [problem for problem, _ in problems.get(kind, [])], problems


def test_folder_without_pictures_is_a_problem(tmp_path: Path) -> None:
    assert "missing" in check_data("gaussian", tmp_path).problems


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    """So that a user doesn't have to come back for each."""
    folder = write_scenes(tmp_path, 6, width=4)
    for spoil in (remove("features/001_depth.bin"), resize("features/002_depth.bin", 9), resize("003.jpg", 300)):
        spoil(folder)
    assert set(check_data("gaussian", folder).problems) == {"missing", "truncated"}
    assert len(check_data("gaussian", folder).problems["truncated"]) == 2


def test_phase_2_has_both_kinds(tmp_path: Path) -> None:
    """Features of base beside those of small: the gaps of the kind that is used are named, and only these."""
    write_scenes(tmp_path, 3, width=4)
    write_scenes(tmp_path, 3, width=5, suffix="_dinov2_base.bin")
    assert not check_data("gaussian", tmp_path, only="base")
    (tmp_path / "features" / "002_dinov2_base.bin").unlink()
    assert check_data("gaussian", tmp_path, only="base").problems == {
        "missing": [("features/002_dinov2_base.bin", "other pictures have features of this kind")]
    }
    assert not check_data("gaussian", tmp_path, only="small")


def test_features_that_the_recipe_refuses_are_problems(tmp_path: Path) -> None:
    """Two kinds without a choice, and a kind that isn't there: found before the launch, not on the machine."""
    write_scenes(tmp_path, 2)
    assert set(check_data("gaussian", tmp_path, only="large").problems) == {"missing"}
    write_scenes(tmp_path, 2, width=12, suffix="_dinov2_base.bin")
    found = check_data("gaussian", tmp_path)
    assert found.problems == {
        "misnamed": [("features", "it has those of small and base; the setting is data.features, here --only")]
    }


@pytest.mark.parametrize(("name", "only"), [("pcdiff", "small"), ("gaussian", "tiny"), ("imagenet", "small")])
def test_kinds_that_a_recipe_does_not_know_are_refused(tmp_path: Path, name: str, only: str) -> None:
    with pytest.raises(BadRequestError, match=f"--only {only} can't be used for {name}"):
        check_data(name, tmp_path, only=only)


def test_generated_scenes_are_as_the_check_and_the_recipe_want_them(tmp_path: Path) -> None:
    """Features as wide as those of DINOv2 small; the same scenes for the same seed."""
    generate_data("gaussian", tmp_path / "a", count=3, seed=5)
    generate_data("gaussian", tmp_path / "b", count=2, seed=5)
    found = check_data("gaussian", tmp_path / "a")
    assert not found, found.render()
    assert found.counts["pictures"] == 3
    scenes = SceneFolder(DataSettings(folder=str(tmp_path / "a")), pixels=64)
    assert scenes.width == 384
    scene = scenes.sample(0, np.random.default_rng(0))
    assert 0 <= float(scene.depth.min()) < float(scene.depth.max()) <= 1
    for path in (tmp_path / "b").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "a" / path.relative_to(tmp_path / "b")).read_bytes()


def test_generated_pictures_are_the_known_gaussians(tmp_path: Path) -> None:
    """Painted from the same draws."""
    generate_data("gaussian", tmp_path, count=1, seed=7)
    image, _ = paint(draw_blobs(np.random.default_rng((7, 0))))
    with Image.open(tmp_path / "scene0000.jpg") as picture:
        assert np.abs(np.asarray(picture) / 255 - image).mean() < 0.02
