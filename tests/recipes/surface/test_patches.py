"""Samples: which volumes, where the patches are, and what augmentation does to all parts of a sample alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import ball

from trainer.base.errors import BadRequestError
from trainer.generators import generate_data
from trainer.generators.surface import save_volume
from trainer.recipes.surface.patches import PatchSource, augment, choose_place, split_by_scroll, tube_skeleton
from trainer.recipes.surface.volumes import LabelledVolume, VolumeStore


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surface")
    generate_data("surface", folder, count=4, seed=1)
    return folder


def make_source(folder: Path, names: list[str], *, augments: bool = True, **others: int) -> PatchSource:
    settings = {"side": 16, "per_volume": 4, "dilation": 2, **others}
    return PatchSource(names, VolumeStore(folder), centred=0.7, augments=augments, **settings)


def make_volume(labels: NDArray[np.uint8]) -> LabelledVolume:
    return LabelledVolume(image=labels, labels=labels, surface=np.flatnonzero(labels == 1))


def test_held_out_scroll_is_for_validation_and_withdrawn_volumes_for_nothing(data: Path) -> None:
    """Twenty rows of the competition's train.csv have their files in deprecated_train_images."""
    training, validation = split_by_scroll(data, "26002")
    assert (len(training), len(validation)) == (3, 1)
    (data / "deprecated_train_images").mkdir()
    withdrawn = data / "deprecated_train_images" / f"{training[0]}.tif"
    withdrawn.touch()
    assert split_by_scroll(data, "26002") == (training[1:], validation)
    withdrawn.unlink()
    other, _ = split_by_scroll(data, "34117")
    assert set(validation) < set(other)


def test_scroll_without_volumes_is_refused_with_those_that_there_are(data: Path) -> None:
    """And so is a file that is no list of volumes."""
    with pytest.raises(BadRequestError) as refusal:
        split_by_scroll(data, "1")
    assert "one of 26002, 34117, 35360" in refusal.value.fix
    with pytest.raises(BadRequestError, match="can't be read as the list of volumes"):
        split_by_scroll(data / "train_images", "26002")


@pytest.mark.parametrize("text", ["id\n7\n", "id,scroll_id\n../../etc/x,1\n", "id,scroll_id\n7\n", "\xff"])
def test_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """An id becomes a file's name."""
    (tmp_path / "train.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadRequestError, match="can't be read as the list of volumes"):
        split_by_scroll(tmp_path, "26002")


def test_an_epoch_has_the_patches_of_each_volume_together(data: Path) -> None:
    """So a volume is decoded once an epoch; the volumes come in random order."""
    source = make_source(data, [str(number) for number in range(50)])
    order = source.order(0, np.random.default_rng(0), 4)
    assert sorted(order) == list(range(200))
    volumes = order.reshape(50, 4) // 4
    assert (volumes == volumes[:, :1]).all()
    assert list(volumes[:, 0]) != list(range(50))


def test_share_of_patches_is_centred_on_the_surface() -> None:
    """One voxel of surface is in the middle of 70% of them, and hardly ever of the others."""
    labels = np.zeros((60, 60, 60), np.uint8)
    labels[30, 30, 30] = 1
    rng = np.random.default_rng(0)
    places = [choose_place(make_volume(labels), 16, 0.7, rng) for _ in range(2000)]
    centred = [place == (slice(22, 38),) * 3 for place in places]
    assert np.mean(centred) == pytest.approx(0.7, abs=0.03)
    assert all(0 <= axis.start <= 44 and axis.stop == axis.start + 16 for place in places for axis in place)


def test_patches_at_the_border_stay_within_the_volume() -> None:
    """They are moved inwards, and a volume without surface has patches anywhere."""
    labels = np.zeros((20, 20, 20), np.uint8)
    rng = np.random.default_rng(0)
    assert len({str(choose_place(make_volume(labels), 16, 1.0, rng)) for _ in range(100)}) > 20
    labels[0, 19, 10] = 1
    assert choose_place(make_volume(labels), 16, 1.0, rng) == (slice(0, 16), slice(4, 20), slice(2, 18))


def test_augmentation_moves_all_parts_alike() -> None:
    """Each voxel keeps its labels and its skeleton; only the raw values are scaled."""
    rng = np.random.default_rng(0)
    number = np.arange(4**3, dtype=np.uint8).reshape(4, 4, 4)
    shapes, scaled = set(), 0
    for _ in range(300):
        raw, labels, skeleton = augment(number.astype(np.float32), number, number % 2 == 1, rng)
        assert np.array_equal(skeleton, labels % 2 == 1)
        slope, offset = np.polyfit(labels.ravel(), raw.ravel(), 1)
        np.testing.assert_allclose(raw, slope * labels + offset, atol=1e-4)
        assert 0.9 <= slope <= 1.1
        assert -0.05 <= round(float(offset), 4) <= 0.05
        scaled += slope != pytest.approx(1, abs=1e-6)
        shapes.add(labels.tobytes())
    assert len(shapes) > 20  # of the 48 orientations of a cube
    assert 100 < scaled < 200


def test_sample_depends_on_its_generator_alone(data: Path) -> None:
    """Whatever was drawn before: so a run that resumes has the same samples."""
    training, _ = split_by_scroll(data, "26002")
    source, other = make_source(data, training), make_source(data, training)
    other.sample(7, np.random.default_rng(1))
    for index in (0, 5, 7):
        first = source.sample(index, np.random.default_rng(9))
        second = other.sample(index, np.random.default_rng(9))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    first, second = (source.sample(0, np.random.default_rng(seed)) for seed in (8, 9))
    assert not torch.equal(first.raw, second.raw)


def test_validation_patches_are_always_the_same_and_some_are_scored(data: Path) -> None:
    """Whatever generator they get."""
    _, validation = split_by_scroll(data, "26002")
    source = make_source(data, validation, augments=False, per_volume=10, scored=4)
    first = [source.sample(index, np.random.default_rng(0)) for index in range(10)]
    second = [source.sample(index, np.random.default_rng(1)) for index in range(10)]
    assert all(torch.equal(a.raw, b.raw) for a, b in zip(first, second, strict=True))
    assert [index for index in range(10) if first[index].is_scored] == [0, 2, 5, 7]


def test_skeleton_is_thin_and_within_the_surface() -> None:
    """A tube's skeleton is its axis, dilated by a ball of 2 voxels."""
    _, y, x = np.mgrid[:32, :32, :32]
    tube = (y - 16) ** 2 + (x - 16) ** 2 <= 36
    thin = tube_skeleton(tube, 0)
    # Towards its ends the axis is shorter by the radius.
    assert thin[8:24, 14:19, 14:19].sum() >= 16
    assert thin.sum() < 60
    thick = tube_skeleton(tube, 2)
    assert np.array_equal(thick, ndimage.binary_dilation(thin, ball(2)) & tube)  # type: ignore[no-untyped-call]
    assert not tube_skeleton(np.zeros((4, 4, 4), bool), 2).any()


def test_volume_that_is_smaller_than_a_patch_is_refused(tmp_path: Path) -> None:
    """With the size that would fit."""
    for kind in ("train_images", "train_labels"):
        (tmp_path / kind).mkdir()
        save_volume(tmp_path / kind / "7.tif", np.zeros((12, 20, 20), np.uint8))
    with pytest.raises(BadRequestError) as refusal:
        make_source(tmp_path, ["7"]).sample(0, np.random.default_rng(0))
    assert "data.patch=12" in refusal.value.fix
