"""`trainer check pcdiff` accepts what `generate` writes, and names everything that is wrong, without torch or NumPy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.checks import check_data
from trainer.checks._npy import read_npy_header
from trainer.generators import generate_data

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "skulls"
    generate_data("pcdiff", folder, count=3, seed=1)
    return folder


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


def problems(folder: Path) -> dict[str, list[tuple[str, str]]]:
    return check_data("pcdiff", folder).problems


def test_generated_skulls_have_nothing_wrong(data: Path) -> None:
    found = check_data("pcdiff", data)
    assert not found
    assert found.counts == {"skulls for training": 2, "skulls for validation": 1, "complete cases": 15}
    assert found.training_samples == 10
    array = np.load(data / "implant/random_2/001_surf.npy")
    assert (array.dtype, array.shape[1]) == (np.float64, 3)
    assert 0 < array.min() < array.max() < 512, "voxels of the original volumes"


def test_the_same_seed_writes_the_same_files(whole: Path, tmp_path: Path) -> None:
    for seed, is_same in ((1, True), (2, False)):
        generate_data("pcdiff", tmp_path / str(seed), count=3, seed=seed)
        name = "implant/bilateral/002_surf.npy"
        assert ((tmp_path / str(seed) / name).read_bytes() == (whole / name).read_bytes()) == is_same


def test_an_implant_fills_the_hole_of_its_skull(data: Path) -> None:
    """Together they surround the middle; the skull alone has no point where the implant has its own."""
    for defect in ("bilateral", "random_1"):
        skull, implant = (
            np.load(data / kind / defect / "000_surf.npy") - 256 for kind in ("defective_skull", "implant")
        )
        middle = implant.mean(0) / np.linalg.norm(implant.mean(0))
        angle = np.arccos(skull @ middle / np.linalg.norm(skull, axis=1))
        assert angle.min() > 0.25
        assert np.abs(np.concatenate([skull, implant]).mean(0)).max() < 60


def test_every_kind_of_problem_is_named(data: Path) -> None:
    (data / "defective_skull/bilateral/000_surf.npy").unlink()
    (data / "implant/bilateral/000_surf.npy").unlink()
    (data / "implant/random_1/000_surf.npy").unlink()
    cut = data / "implant/random_2/000_surf.npy"
    cut.write_bytes(cut.read_bytes()[:1000])
    np.save(data / "implant/frontoorbital/000_surf.npy", np.zeros((3, 9)))
    np.save(data / "implant/parietotemporal/000_surf.npy", np.zeros((9, 3), dtype=np.int32))
    (data / "implant/bilateral/001_surf.npy").write_bytes(b"PK\x03\x04, which is a zip")
    (data / "implant/random_3").mkdir()
    with (data / "train.csv").open("a") as stream:
        stream.write("complete_skull/000_surf.npy\nsomewhere/004_surf.npy\n")
    assert problems(data) == {
        "missing": [
            ("defective_skull/bilateral/000_surf.npy", "the lists name 000"),
            ("implant/bilateral/000_surf.npy", "the lists name 000"),
        ],
        "unlabelled": [("implant/random_1/000_surf.npy", "the skull is there")],
        "truncated": [("implant/random_2/000_surf.npy", "1,000 of 48,128 bytes")],
        "mis-shaped": [
            ("implant/frontoorbital/000_surf.npy", "3x9 of f8 instead of Mx3 floats"),
            ("implant/parietotemporal/000_surf.npy", "9x3 of i4 instead of Mx3 floats"),
        ],
        "unreadable": [("implant/bilateral/001_surf.npy", "it doesn't begin like an .npy file")],
        "misnamed": [
            ("train.csv", "row 3: complete_skull/000_surf.npy comes twice"),
            ("train.csv", "row 4: somewhere/004_surf.npy isn't complete_skull/NAME_surf.npy"),
            ("implant/random_3", "the defects are bilateral, frontoorbital, parietotemporal, random_1, random_2"),
        ],
    }


def test_lists_that_are_something_else_are_named(data: Path) -> None:
    """A binary file may have a row that is longer than Python's csv module reads, or can't be read at all."""
    (data / "train.csv").write_text("x" * 200_000)
    assert problems(data) == {"misnamed": [("train.csv", "it can't be read: field larger than field limit (131072)")]}


def test_an_empty_folder_and_a_list_without_folders_are_problems(tmp_path: Path) -> None:
    assert problems(tmp_path).keys() == {"missing"}
    (tmp_path / "train.csv").write_text("complete_skull/000_surf.npy\ncomplete_skull/001_surf.npy\n")
    assert len(problems(tmp_path)["missing"]) == 20


def test_folders_without_lists_are_enough(data: Path) -> None:
    (data / "train.csv").unlink()
    (data / "test.csv").unlink()
    assert not problems(data)
    shutil.rmtree(data / "complete_skull")
    assert check_data("pcdiff", data).counts["complete cases"] == 15


def test_clouds_that_no_list_names_are_counted(data: Path) -> None:
    shutil.copy(data / "implant/bilateral/000_surf.npy", data / "implant/bilateral/777_surf.npy")
    found = check_data("pcdiff", data)
    assert not found
    assert found.counts["clouds in implant that no list names"] == 1


def test_it_runs_without_installed_packages_and_refuses_a_batch_without_steps(data: Path) -> None:
    """W1's batch of 56 and two skulls for training: 10 cases."""
    argv = [
        sys.executable,
        "-S",
        "-m",
        "trainer",
        "check",
        "pcdiff",
        "--data",
        str(data),
        "--batch-size",
        "56",
        "--json",
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["kind"] == "too few"
    assert "a batch of 56 leaves no step: 10 samples are for training" in problem["what"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "begin"),
        (b"\x93NUMPY\x01\x00\xff\xff", "65,535 bytes"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "2,147,483,647 bytes"),
        (b"\x93NUMPY\x01\x00\x0c\x00" + b"(" * 12, "can't be read"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O'} ", "not numbers"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}", "no shape"),
        (b"\x93NUMPY\x01\x00\x22\x00{'descr': '<f8', 'shape': (-1, 3)}", "no shape"),
    ],
)
def test_a_hostile_header_is_unreadable(data: Path, content: bytes, why: str) -> None:
    path = data / "implant/bilateral/000_surf.npy"
    path.write_bytes(content)
    ((name, what),) = problems(data)["unreadable"]
    assert name == "implant/bilateral/000_surf.npy"
    assert why in what


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_headers_of_all_versions_are_numpys(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.zeros((7, 3), dtype=np.float32)
    with (tmp_path / "a.npy").open("wb") as stream:
        np.lib.format.write_array(stream, array, version=version)
    with (tmp_path / "a.npy").open("rb") as stream:
        header = read_npy_header(stream)
    assert (header.kind, header.item_bytes, header.shape) == ("f", 4, (7, 3))
    assert header.file_bytes == (tmp_path / "a.npy").stat().st_size
