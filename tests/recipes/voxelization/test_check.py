"""`python -m trainer check voxelization`: all that is wrong with pairs of clouds and volumes, by their headers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer.checks import check_data

ROOT = Path(__file__).parents[3]
CLOUD, VOLUME = "000_bilateral_pc.npz", "000_bilateral_vox.npz"


def find(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Check a folder, and return its problems."""
    return check_data("voxelization", folder).problems


def test_generated_data_are_complete(made: Path) -> None:
    """Of two skulls one is held out; a batch of six leaves no step. No installed package is needed."""
    found = check_data("voxelization", made)
    assert not found
    assert found.counts == {"point clouds": 10, "volumes": 10}
    assert found.training_samples == 5
    argv = [sys.executable, "-S", "-m", "trainer", "check", "voxelization", "--data", str(made), "--batch-size=6"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "a batch of 6 leaves no step: 5 samples are for training" in done.stdout


def test_pairs_that_lack_a_file_are_found(data: Path) -> None:
    """A cloud without its volume has no label."""
    (data / CLOUD).unlink()
    (data / "001_random_1_vox.npz").unlink()
    assert find(data) == {
        "missing": [(CLOUD, f"{VOLUME} has no point cloud")],
        "unlabelled": [("001_random_1_pc.npz", "there is no 001_random_1_vox.npz")],
    }


def test_names_that_the_trainer_would_not_find_are_found(data: Path) -> None:
    """Names of the original's augmented pairs, and of SkullFix, are right."""
    for name in ("000_bilateral3", "007_random_2_11", "008"):
        for part in ("pc", "vox"):
            shutil.copy(data / f"000_bilateral_{part}.npz", data / f"{name}_{part}.npz")
    assert find(data) == {}
    (data / CLOUD).rename(data / "bilateral_000_pc.npz")
    (data / VOLUME).unlink()
    why = "a name is NNN_<defect>_pc.npz or NNN_<defect>_vox.npz"
    assert find(data) == {"misnamed": [("bilateral_000_pc.npz", why)]}


@pytest.mark.timeout(30)
def test_long_names_are_read_at_once(data: Path) -> None:
    """Digits could be split in many ways: a name of 40 took hours. It is also what the trainer looks for."""
    name = f"000_bilateral{'7' * 200}.npz"
    shutil.copy(data / CLOUD, data / name)
    assert find(data) == {"misnamed": [(name, "a name is NNN_<defect>_pc.npz or NNN_<defect>_vox.npz")]}


@pytest.mark.parametrize(
    ("array", "kind", "what"),
    [
        (np.zeros((30_720, 3), np.float64), "", ""),
        (np.zeros((30_720, 4), np.float32), "mis-shaped", "30,720 x 4, and 30,720 x 3 is needed"),
        (np.zeros((100, 3), np.float32), "mis-shaped", "100 x 3, and 30,720 x 3 is needed"),
        (np.zeros((30_720, 3), np.int32), "mis-shaped", "dtype <i4, and <f4 or <f8 is needed"),
        (np.zeros((), np.float32), "mis-shaped", "a single number, and 30,720 x 3 is needed"),
        (np.array([{}]), "unreadable", "its elements are '|O', not numbers"),
    ],
)
def test_clouds_of_another_shape_or_dtype_are_found(data: Path, array: NDArray[Any], kind: str, what: str) -> None:
    """Float32 and float64 are right."""
    np.savez(data / CLOUD, points=array)
    assert find(data) == ({kind: [(CLOUD, what)]} if kind else {})


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((32, 32, 31), np.float32), "32 x 32 x 31, and a cube of 32 to 512 nodes is needed"),
        (np.zeros((32, 32), np.float32), "32 x 32, and a cube of 32 to 512 nodes is needed"),
        (np.zeros((4, 4, 4), np.float32), "4 x 4 x 4, and a cube of 32 to 512 nodes is needed"),
        (np.zeros((64, 64, 64), np.float32), "64 nodes a side, and 32 in the others"),
        (np.zeros((32, 32, 32), np.float64), "dtype <f8, and <f4 is needed"),
        (np.zeros((32, 32, 32), np.bool_), "dtype |b1, and <f4 is needed"),
    ],
)
def test_volumes_of_another_shape_or_dtype_are_found(data: Path, array: NDArray[Any], what: str) -> None:
    """All volumes of a data set have the same size."""
    np.savez(data / VOLUME, psr=array)
    assert find(data) == {"mis-shaped": [(VOLUME, what)]}


def test_arrays_under_another_name_are_found(data: Path) -> None:
    """The name that is there is told."""
    np.savez(data / CLOUD, pts=np.zeros((30_720, 3)))
    assert find(data) == {"missing": [(CLOUD, "it has no array points, but pts")]}


def test_damaged_archives_are_found(data: Path) -> None:
    """Cut off, empty, no archive at all, or with less data than its header promises."""
    whole = (data / CLOUD).read_bytes()
    (data / CLOUD).write_bytes(whole[: len(whole) // 2])
    (data / VOLUME).write_bytes(b"")
    (data / "001_bilateral_pc.npz").write_bytes(b"not a zip")
    with zipfile.ZipFile(data / "001_bilateral_vox.npz", "w") as archive:
        np.save(data / "psr.npy", np.zeros((32, 32, 32), np.float32))
        archive.writestr("psr.npy", (data / "psr.npy").read_bytes()[:1000])
    assert find(data) == {
        "truncated": [
            (CLOUD, "the end of the archive is missing"),
            (VOLUME, "it is empty"),
            ("001_bilateral_vox.npz", "1,000 of 131,200 bytes"),
        ],
        "unreadable": [("001_bilateral_pc.npz", "File is not a zip file")],
    }


def test_members_that_numpy_does_not_write_are_unreadable(data: Path) -> None:
    """Their decoders have errors of their own: a damaged LZMA stream ended in a traceback."""
    np.save(data / "points.npy", np.zeros((30_720, 3), np.float32))
    with zipfile.ZipFile(data / CLOUD, "w", zipfile.ZIP_LZMA) as archive:
        archive.write(data / "points.npy", "points.npy")
    content = bytearray((data / CLOUD).read_bytes())
    content[60] ^= 0xFF
    (data / CLOUD).write_bytes(content)
    why = "points.npy is compressed in a way that NumPy does not write: save it with savez_compressed"
    assert find(data) == {"unreadable": [(CLOUD, why)]}


def test_headers_that_are_no_header_are_unreadable(data: Path) -> None:
    """Code in a header isn't run, and a header of a gigabyte isn't read."""
    for number, header in enumerate((b"__import__('os')", b"{'descr': '<f4', 'shape': (1 << 99,)}", b"(" * 9000)):
        with zipfile.ZipFile(data / f"00{number % 2}_random_{number // 2 + 1}_pc.npz", "w") as archive:
            archive.writestr("points.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    problems = find(data)
    assert {kind: len(each) for kind, each in problems.items()} == {"unreadable": 3}


def test_lists_are_checked_against_the_folder(data: Path) -> None:
    """Only the last part of a line counts: the folder was another one where the list was written."""
    (data / "train.csv").write_text("/home/me/datasets/SkullBreak/voxelization/000_bilateral\n\n000_random_1\n")
    assert find(data) == {"missing": [("eval.csv", "the other list is there; without both, whole skulls are held out")]}
    (data / "eval.csv").write_text("datasets/000_random_1\r\ndatasets/009_bilateral\r\n")
    found = check_data("voxelization", data)
    assert found.problems == {
        "missing": [("eval.csv", "it lists 009_bilateral, which is not there")],
        "misnamed": [("eval.csv", "000_random_1 is in train.csv as well")],
    }
    assert found.training_samples == 2
    (data / "eval.csv").write_text("a_pc.npz,b_vox.npz\n")
    ((_, why),) = find(data)["unreadable"]
    assert why == "a line has one path without _pc.npz, and one is 'a_pc.npz,b_vox.npz'"


def test_empty_folders_and_single_skulls_are_too_few(tmp_path: Path, data: Path) -> None:
    """Without a second skull nothing can be held out."""
    assert find(tmp_path)["missing"] == [(".", "there is no NNN_<defect>_pc.npz")]
    for path in data.glob("001_*"):
        path.unlink()
    assert find(data) == {"too few": [(".", "one skull; a second one is needed for validation")]}
