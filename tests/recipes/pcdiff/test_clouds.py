"""Skulls are read from SkullBreak's folders, drawn, rotated and normalised; the noise comes from `rng` alone."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from trainer.api import BadRequestError
from trainer.checks import check_data
from trainer.checks._skulls import DEFECTS, list_cases, split_skulls
from trainer.generators.pcdiff import generate
from trainer.recipes.pcdiff.clouds import SkullClouds, find_box, read_cases, rotate, spread_cases
from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.settings import DataSettings, DiffusionSettings

# Shape legend: N points.
DATA = DataSettings(points=300, implant_points=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skulls")
    generate(folder, count=2, seed=0)
    return folder


def source(folder: Path, data: DataSettings = DATA, *, is_training: bool = True) -> SkullClouds:
    train, _ = read_cases(folder)
    return SkullClouds(folder, train, data, Diffusion(DiffusionSettings()), is_training=is_training)


def test_each_skull_is_five_cases(folder: Path) -> None:
    train, validation = read_cases(folder)
    defects = ["bilateral", "frontoorbital", "parietotemporal", "random_1", "random_2"]
    assert [case.defective_file for case in train] == [f"defective_skull/{each}/000_surf.npy" for each in defects]
    assert [case.implant_file for case in validation] == [f"implant/{each}/001_surf.npy" for each in defects]


def test_the_sizes_are_30720_points_of_which_3072_are_the_implants(folder: Path) -> None:
    sample = source(folder, DataSettings()).sample(0, np.random.default_rng(0))
    assert sample["skull"].shape == (27_648, 3)
    assert {sample[name].shape for name in ("implant", "noisy", "noise")} == {(3_072, 3)}
    assert {sample[name].dtype for name in ("skull", "implant", "noisy", "noise")} == {torch.float32}


def test_skull_and_implant_together_reach_from_minus_3_to_3(folder: Path) -> None:
    sample = source(folder).sample(1, np.random.default_rng(0))
    cloud_N3 = torch.cat([sample["skull"], sample["implant"]])
    sides = cloud_N3.amax(0) - cloud_N3.amin(0)
    assert float(sides.max()) == pytest.approx(6, abs=1e-5)
    assert (cloud_N3.amax(0) + cloud_N3.amin(0)).numpy() == pytest.approx(np.zeros(3), abs=1e-5)
    file_M3 = np.load(folder / "implant/frontoorbital/000_surf.npy")
    back_N3 = (sample["shift"] + sample["scale"] * sample["implant"]).numpy()
    distances = np.linalg.norm(back_N3[:, None] - file_M3[None], axis=2).min(1)
    assert distances.max() < 1e-3, "in the file's unit, they are points of the file"


@pytest.mark.parametrize(("is_training", "normalize"), [(False, "both"), (True, "skull")])
def test_an_unknown_implant_doesnt_move_the_box(folder: Path, is_training: bool, normalize: str) -> None:
    data = replace(DATA, normalize="skull" if normalize == "skull" else "both")
    sample = source(folder, data, is_training=is_training).sample(1, np.random.default_rng(0))
    skull_N3 = sample["skull"]
    assert float((skull_N3.amax(0) - skull_N3.amin(0)).max()) == pytest.approx(6, abs=1e-5)


def test_a_sample_depends_on_its_index_and_generator_only(folder: Path) -> None:
    cases = source(folder, replace(DATA, rotation_degrees=10))
    one, two, other = (cases.sample(2, np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert all(not torch.equal(one[name], other[name]) for name in ("skull", "implant", "noise"))
    assert int(cases.sample(3, np.random.default_rng(0))["index"]) == 3


def test_noise_is_added_for_the_samples_step(folder: Path) -> None:
    sample = source(folder).sample(0, np.random.default_rng(3))
    kept = Diffusion(DiffusionSettings()).kept_T[sample["step"]]
    expected = kept.sqrt() * sample["implant"] + (1 - kept).sqrt() * sample["noise"]
    assert sample["noisy"].numpy() == pytest.approx(expected.numpy(), abs=1e-5)


def test_steps_are_random_in_training_and_spread_in_validation(folder: Path) -> None:
    """With few held-out cases, random steps would make one validation loss much better than the next."""
    steps = [int(source(folder).sample(1, np.random.default_rng(seed))["step"]) for seed in range(40)]
    assert min(steps) < 200
    assert max(steps) >= 800
    validation = source(folder, is_training=False)
    spread = [int(validation.sample(index, np.random.default_rng(9))["step"]) for index in range(5)]
    assert sorted(step // 200 for step in spread) == [0, 1, 2, 3, 4]


def test_rotations_are_scipys_about_the_mean() -> None:
    cloud_N3, angles = np.random.default_rng(0).normal(5, 1, (40, 3)), np.array([0.1, -0.15, 0.05])
    middle = cloud_N3.mean(0)
    expected = Rotation.from_euler("XYZ", angles).apply(cloud_N3 - middle) + middle
    assert rotate(cloud_N3, angles) == pytest.approx(expected, abs=1e-12)


def test_a_cloud_without_extent_is_refused() -> None:
    with pytest.raises(BadRequestError, match="no extent"):
        find_box(np.ones((5, 3)))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (np.zeros((9, 2)), "9x2 of f8"),
        (np.zeros((0, 3)), "0x3 of f8"),
        (np.zeros((9, 3), dtype=int), "9x3 of i8"),
        (np.full((9, 3), np.nan), "aren't finite"),
        (np.array([{}, {}], dtype=object), "not numbers"),
    ],
)
def test_a_cloud_that_isnt_points_is_refused(folder: Path, tmp_path: Path, content: np.ndarray, why: str) -> None:
    bad = tmp_path / "implant" / "bilateral" / "000_surf.npy"
    skull = tmp_path / "defective_skull" / "bilateral"
    bad.parent.mkdir(parents=True)
    skull.mkdir(parents=True)
    (skull / "000_surf.npy").write_bytes((folder / "defective_skull/bilateral/000_surf.npy").read_bytes())
    np.save(bad, content, allow_pickle=True)
    cases, _ = read_cases(folder)
    clouds = SkullClouds(tmp_path, cases, DATA, Diffusion(DiffusionSettings()), is_training=True)
    with pytest.raises(BadRequestError, match=why):
        clouds.sample(0, np.random.default_rng(0))


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x05\x06" + bytes(18),
        b"\x93NUMPY\x01\x00\x0c\x00{'descr': '\n\xff",
        b"\x93NUMPY\x01\x00\x0c\x00(((((((((((\n",
        b"\x93NUMPY\x09\x09" + bytes(30),
        b"\x93NUM",
        b"",
    ],
)
def test_a_damaged_file_is_refused_by_its_name(folder: Path, tmp_path: Path, content: bytes) -> None:
    """Whatever kind of file it has become: a zip with this name, headers that end within a string or a bracket."""
    cases, _ = read_cases(folder)
    path = tmp_path / cases[0].defective_file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    clouds = SkullClouds(tmp_path, cases, DATA, Diffusion(DiffusionSettings()), is_training=True)
    with pytest.raises(BadRequestError, match=r"bilateral/000_surf\.npy can't be used"):
        clouds.sample(0, np.random.default_rng(0))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2"])
def test_clouds_are_read_as_numpy_reads_them(folder: Path, tmp_path: Path, dtype: str, order: Any) -> None:
    """Whatever the order of their axes and bytes is."""
    cases, _ = read_cases(folder)
    points_M3 = np.random.default_rng(0).integers(0, 100, (40, 3)).astype(dtype)
    for name in (cases[0].defective_file, cases[0].implant_file):
        (tmp_path / name).parent.mkdir(parents=True)
        np.save(tmp_path / name, np.asarray(points_M3, order=order))
    clouds = SkullClouds(tmp_path, cases, DATA, Diffusion(DiffusionSettings()), is_training=False)
    sample = clouds.sample(0, np.random.default_rng(0))
    drawn_I3 = (sample["shift"] + sample["scale"] * sample["implant"]).numpy()
    distances = np.abs(drawn_I3[:, None] - points_M3[None].astype(float)).max(2)
    assert distances.min(1).max() < 1e-3
    assert len(set(distances.argmin(1))) > 20


def test_a_pickle_isnt_loaded_nor_memory_allocated_for_a_cut_file(folder: Path, tmp_path: Path) -> None:
    cases, _ = read_cases(folder)
    clouds = SkullClouds(tmp_path, cases, DATA, Diffusion(DiffusionSettings()), is_training=True)
    path = tmp_path / cases[0].defective_file
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(BadRequestError, match="can't be used"):
        clouds.sample(0, np.random.default_rng(0))
    np.save(path, np.zeros((4, 3)))
    path.write_bytes(path.read_bytes().replace(b"(4, 3), ", b"(9999999999, 3),"))
    with pytest.raises(BadRequestError, match="can't be used"):
        clouds.sample(0, np.random.default_rng(0))


def test_lists_of_both_originals_and_folders_without_lists_are_read(tmp_path: Path) -> None:
    """What comes before complete_skull is of another computer."""
    (tmp_path / "train.csv").write_text("complete_skull/070_surf.npy\r\n/home/a/SkullBreak/complete_skull/080.nrrd\n")
    (tmp_path / "test.csv").write_text("datasets\\SkullBreak\\complete_skull\\001.nrrd\n")
    split = split_skulls(tmp_path)
    assert (split.train, split.validation, split.wrong) == (("070", "080"), ("001",), ())
    (tmp_path / "test.csv").unlink()
    assert split_skulls(tmp_path).validation == ("080",)
    (tmp_path / "train.csv").unlink()
    for number in range(10):
        (tmp_path / "complete_skull").mkdir(exist_ok=True)
        (tmp_path / "complete_skull" / f"{number:03}_surf.npy").touch()
    split = split_skulls(tmp_path)
    assert split.train == tuple(f"{number:03}" for number in range(8))
    assert split.validation == ("008", "009")


def test_without_train_csv_the_folders_other_skulls_are_for_training(tmp_path: Path) -> None:
    generate(tmp_path, count=4, seed=0)
    (tmp_path / "train.csv").unlink()
    (tmp_path / "test.csv").write_text("complete_skull/001_surf.npy\n")
    assert not check_data("pcdiff", tmp_path)
    train, validation = read_cases(tmp_path)
    assert [case.skull for case in train[::5]] == ["000", "002", "003"]
    assert {case.skull for case in validation} == {"001"}


@pytest.mark.parametrize(("skulls", "count"), [(23, 8), (8, 8), (3, 8), (1, 4), (2, 30)])
def test_cases_that_choose_the_best_weights_are_spread_over_skulls_and_defects(skulls: int, count: int) -> None:
    cases = list_cases(tuple(f"{number:03}" for number in range(skulls)))
    chosen = spread_cases(cases, count)
    assert len(set(chosen)) == len(chosen) == min(count, len(cases))
    assert len({cases[index].skull for index in chosen}) == min(count, skulls)
    assert len({cases[index].defect for index in chosen}) == min(count, len(DEFECTS))
    skull = [index // len(DEFECTS) for index in chosen]
    assert max(np.diff([*skull, skulls])) <= -(-skulls // len(chosen)), "none is far from a chosen one"


def test_a_folder_without_skulls_and_rows_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="can't be trained on"):
        read_cases(tmp_path)
    (tmp_path / "train.csv").write_text("complete_skull/../../etc/passwd_surf.npy\ncomplete_skull/070_surf.npy\n")
    (tmp_path / "test.csv").write_text("complete_skull/070_surf.npy\n")
    with pytest.raises(BadRequestError, match="can't be trained on") as refused:
        read_cases(tmp_path)
    assert "070 is in train.csv as well" in str(refused.value)
    assert "isn't complete_skull/NAME_surf.npy" in str(refused.value)
