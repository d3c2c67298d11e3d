"""`python -m trainer check surface` finds what would stop a training, without decoding and without packages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from trainer.checks import check_data
from trainer.checks._tiff import read_tiff_header
from trainer.generators import generate_data
from trainer.generators.surface import save_volume

ROOT = Path(__file__).parents[3]
FIRST = "1000000"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    generate_data("surface", folder, count=4, seed=0)
    return folder


def test_generated_data_have_no_problem_and_are_counted(data: Path) -> None:
    """An epoch has four patches of each volume that isn't held out."""
    found = check_data("surface", data)
    assert not found, found.render()
    assert found.training_samples == 12
    assert found.counts["volumes of scroll 26002"] == 1
    assert "which voxels are unlabelled is not seen without decoding" in found.render()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def cut_strips(path: Path) -> None:
    """One page, whose directory comes before its strip."""
    tifffile.imwrite(path, np.zeros((48, 48), np.uint8), photometric="minisblack")
    path.write_bytes(path.read_bytes()[:-100])


def write(content: bytes) -> Callable[[Path], None]:
    def overwrite(path: Path) -> None:
        path.write_bytes(content)

    return overwrite


@pytest.mark.parametrize(
    ("file", "damage", "kind", "what"),
    [
        (f"train_images/{FIRST}.tif", Path.unlink, "missing", "train.csv lists it"),
        (f"train_labels/{FIRST}.tif", Path.unlink, "unlabelled", "its image has no labels"),
        (f"train_images/{FIRST}.tif", cut, "truncated", "bytes"),
        (f"train_images/{FIRST}.tif", cut_strips, "truncated", " of 2,5"),
        (f"train_images/{FIRST}.tif", write(b""), "truncated", "0 bytes"),
        (f"train_images/{FIRST}.tif", write(b"not a picture at all"), "unreadable", "doesn't begin as a TIFF"),
        (
            f"train_labels/{FIRST}.tif",
            lambda path: save_volume(path, np.zeros((47, 48, 48), np.uint8)),
            "mis-shaped",
            "47 x 48 x 48 voxels, its image has 48 x 48 x 48",
        ),
        (
            f"train_labels/{FIRST}.tif",
            lambda path: tifffile.imwrite(path, np.zeros((48, 48, 48), np.uint16), photometric="minisblack"),
            "mis-shaped",
            "1 samples of 16 bits",
        ),
        (
            f"train_images/{FIRST}.tif",
            lambda path: Image.new("RGB", (48, 48)).save(path),
            "mis-shaped",
            "3 samples of 8 bits",
        ),
        ("train_images/stranger.tif", write(b"II"), "misnamed", "train.csv doesn't list it"),
        ("train.csv", Path.unlink, "missing", "lists the volumes"),
        ("train.csv", write(b"id;scroll\n1;2\n"), "mis-shaped", "its columns are id;scroll"),
        ("train.csv", write(b"id,scroll_id\n7,1\n7,2\n"), "misnamed", "line 3: id 7 comes twice"),
        ("train.csv", write(b"id,scroll_id\n../a,1\n"), "misnamed", "line 2: '../a' is no id"),
        ("train.csv", write(b"id,scroll_id\n7,\n"), "mis-shaped", "volume 7 has no scroll_id"),
        ("train.csv", write(b"\xff\xfe"), "unreadable", "decode"),
    ],
)
def test_problem_is_found_with_its_kind(
    data: Path, file: str, damage: Callable[[Path], None], kind: str, what: str
) -> None:
    """Each names the file and what is wrong with it."""
    damage(data / file)
    found = check_data("surface", data)
    details = [text for path, text in found.problems.get(kind, []) if path == file]
    assert details, found.render()
    assert what in details[0]


def test_all_problems_are_reported_not_only_the_first(data: Path) -> None:
    """As JSON too."""
    for path in (data / "train_images").glob("*.tif"):
        path.write_bytes(b"x")
    problems = json.loads(check_data("surface", data).render_json())["problems"]
    assert [each["kind"] for each in problems].count("unreadable") == 4


def test_volumes_that_the_competition_withdrew_are_no_problem(data: Path) -> None:
    """train.csv still lists them; their files are in deprecated_train_images."""
    for kind in ("images", "labels"):
        (data / f"deprecated_train_{kind}").mkdir()
        (data / f"train_{kind}" / f"{FIRST}.tif").rename(data / f"deprecated_train_{kind}" / f"{FIRST}.tif")
    found = check_data("surface", data)
    assert not found, found.render()
    assert found.training_samples == 8


def test_one_scroll_alone_is_too_few(data: Path) -> None:
    """One is held out."""
    _, *rows = (data / "train.csv").read_text().splitlines()
    same = [f"{row.partition(',')[0]},1\n" for row in rows]
    (data / "train.csv").write_text("".join(["id,scroll_id\n", *same]))
    assert "too few" in check_data("surface", data).problems


def test_batch_that_leaves_no_step_is_found(data: Path) -> None:
    """12 patches; the check is told the batch of the job."""
    words = ["check", "surface", "--data", str(data), "--batch-size", "16"]
    # -S: without any installed package.
    argv = [sys.executable, "-S", "-m", "trainer", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "a batch of 16 leaves no step: 12 samples are for training" in done.stdout + done.stderr


FORMS = [{}, {"bigtiff": True}, {"byteorder": ">"}, {"compression": "zlib"}, {"tile": (16, 16)}]


@pytest.mark.parametrize("form", FORMS)
def test_headers_of_other_writers_are_read(tmp_path: Path, form: dict[str, Any]) -> None:
    """BigTIFF, the other byte order, deflate, tiles."""
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 20, 30), np.uint8), photometric="minisblack", **form)
    header = read_tiff_header(tmp_path / "a.tif")
    assert [(page.height, page.width, page.bits) for page in header.pages] == [(20, 30, 8)] * 3
    assert header.end <= header.bytes == (tmp_path / "a.tif").stat().st_size


def test_pages_in_a_circle_end(tmp_path: Path) -> None:
    """A page that names itself as the next one."""
    path = tmp_path / "a.tif"
    save_volume(path, np.zeros((2, 8, 8), np.uint8), "raw")
    content = bytearray(path.read_bytes())
    first = int.from_bytes(content[4:8], "little")
    after = first + 2 + 12 * int.from_bytes(content[first : first + 2], "little")
    content[after : after + 4] = first.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no end"):
        read_tiff_header(path)


def test_counts_that_no_file_can_have_take_no_memory(tmp_path: Path) -> None:
    """A page that says it has four thousand million strips."""
    path = tmp_path / "a.tif"
    save_volume(path, np.zeros((1, 8, 8), np.uint8), "raw")
    content = bytearray(path.read_bytes())
    at = content.index((273).to_bytes(2, "little"))
    content[at + 4 : at + 8] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="4,294,967,295 strips"):
        read_tiff_header(path)


def test_generator_is_deterministic_and_says_what_it_makes(tmp_path: Path) -> None:
    """The same seed gives the same bytes; all three labels are there."""
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        generate_data("surface", tmp_path / name, count=2, seed=seed)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name / "train_images").iterdir()} for name in "abc"]
    assert files[0] == files[1] != files[2]
    labels = read_pages(tmp_path / "a" / "train_labels" / f"{FIRST}.tif")
    assert sorted(np.unique(labels)) == [0, 1, 2]
    assert labels.shape == (48, 48, 48)


def read_pages(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as file:
        pages = []
        for page in range(getattr(file, "n_frames", 1)):
            file.seek(page)
            pages.append(np.asarray(file))
    return np.stack(pages)
