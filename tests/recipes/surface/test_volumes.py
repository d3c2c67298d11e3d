"""Reading volumes: TIFF files of any usual compression, memory maps, and files that are something else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from trainer.base.errors import BadRequestError
from trainer.generators.surface import save_volume
from trainer.recipes.surface.volumes import VolumeStore, read_volume

VOLUME = np.random.default_rng(0).integers(0, 256, (5, 7, 9), dtype=np.uint8)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_volume_is_read_as_it_was_written(tmp_path: Path, compression: str) -> None:
    """The competition's files have LZW, for which tifffile would need another package."""
    path = tmp_path / "a.tif"
    save_volume(path, VOLUME, compression)
    assert np.array_equal(read_volume(path), VOLUME)


@pytest.mark.parametrize("form", [{}, {"bigtiff": True}, {"byteorder": ">"}, {"compression": "zlib"}])
def test_files_of_tifffile_are_read(tmp_path: Path, form: dict[str, Any]) -> None:
    """Another writer: BigTIFF, the other byte order, deflate."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME, photometric="minisblack", **form)
    assert np.array_equal(read_volume(path), VOLUME)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    """With its name and a next step."""
    path = tmp_path / "a.tif"
    save_volume(path, VOLUME)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(BadRequestError, match=r"a\.tif can't be used as a volume"):
        read_volume(path)


@pytest.mark.parametrize("tag", [256, 257, 258, 262, 273, 278, 279])
def test_file_without_one_of_its_tags_is_read_or_refused(tmp_path: Path, tag: int) -> None:
    """Pillow raises a TypeError or a KeyError for some: each tag is turned into an unknown one of its first page."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME, photometric="minisblack")
    content = bytearray(path.read_bytes())
    first = int.from_bytes(content[4:8], "little")
    entries = range(first + 2, first + 2 + 12 * int.from_bytes(content[first : first + 2], "little"), 12)
    (at,) = (at for at in entries if int.from_bytes(content[at : at + 2], "little") == tag)
    content[at : at + 2] = (65_000).to_bytes(2, "little")
    path.write_bytes(content)
    with contextlib.suppress(BadRequestError):
        assert read_volume(path).shape == VOLUME.shape


def test_pages_that_differ_are_refused(tmp_path: Path) -> None:
    """The message has the page."""
    path = tmp_path / "a.tif"
    pages = [Image.fromarray(VOLUME[0]), Image.fromarray(VOLUME[1, :4])]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    with pytest.raises(BadRequestError) as refusal:
        read_volume(path)
    assert "page 2 is 4 x 9, mode L; page 1 is 7 x 9" in refusal.value.why


def test_colour_and_16_bits_are_refused(tmp_path: Path) -> None:
    """A volume has 8 bits a voxel."""
    for name, picture in (("rgb", Image.new("RGB", (9, 7))), ("deep", Image.new("I;16", (9, 7)))):
        picture.save(tmp_path / f"{name}.tif")
        with pytest.raises(BadRequestError, match="can't be used"):
            read_volume(tmp_path / f"{name}.tif")


def test_file_that_claims_a_huge_size_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    """Its header says 60,000 x 60,000; a few bytes are there."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((8, 8), np.uint8))
    content = bytearray(path.read_bytes())
    for tag in (256, 257):
        at = content.index(tag.to_bytes(2, "little") + b"\x04\x00\x01\x00\x00\x00")  # one number of 32 bits
        content[at + 8 : at + 12] = (60_000).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BadRequestError, match="can't be used"):
        read_volume(path)


def test_other_formats_are_refused_whatever_their_name(tmp_path: Path) -> None:
    """Pillow would open a PNG as well."""
    Image.fromarray(VOLUME[0]).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "a.tif")
    with pytest.raises(BadRequestError, match="can't be used"):
        read_volume(tmp_path / "a.tif")


def test_cache_holds_memory_maps_and_is_renewed_with_its_source(tmp_path: Path) -> None:
    """The second time the TIFF file isn't decoded; another file of the same name is."""
    write_pair(tmp_path, VOLUME)
    cache = tmp_path / "cache"
    opened = VolumeStore(tmp_path, cache).open("7")
    assert isinstance(opened.image, np.memmap)
    assert np.array_equal(opened.image, VOLUME)
    source = tmp_path / "train_images" / "7.tif"
    stat = source.stat()
    source.write_bytes(bytes(stat.st_size))  # what can't be decoded any more
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert np.array_equal(VolumeStore(tmp_path, cache).open("7").image, VOLUME)
    save_volume(source, VOLUME[::-1])
    assert np.array_equal(VolumeStore(tmp_path, cache).open("7").image, VOLUME[::-1])


def test_cached_file_with_a_pickle_runs_no_code(tmp_path: Path) -> None:
    """A cache may lie on a disk that others write."""
    write_pair(tmp_path, VOLUME)
    VolumeStore(tmp_path, tmp_path / "cache").open("7")
    for path in (tmp_path / "cache").rglob("*.npy"):
        np.save(path, np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadRequestError, match=r"npy can't be used"):
        VolumeStore(tmp_path, tmp_path / "cache").open("7")


def test_labels_of_another_shape_are_refused(tmp_path: Path) -> None:
    """Both shapes are in the message."""
    write_pair(tmp_path, VOLUME, labels=VOLUME[:4])
    with pytest.raises(BadRequestError) as refusal:
        VolumeStore(tmp_path).open("7")
    assert "(4, 7, 9) voxels, its image (5, 7, 9)" in refusal.value.why


@pytest.mark.parametrize("cached", [False, True])
def test_labels_that_the_loss_does_not_know_are_refused_with_file_and_voxel(tmp_path: Path, cached: bool) -> None:
    """On a GPU they would end the run with an assertion that names no file; the check reads headers only."""
    labels = VOLUME % 3
    labels[2, 3, 4] = 255
    write_pair(tmp_path, VOLUME, labels=labels)
    with pytest.raises(BadRequestError, match=r"train_labels/7\.tif has the label 255") as refusal:
        VolumeStore(tmp_path, tmp_path / "cache" if cached else None).open("7")
    assert "voxel (2, 3, 4)" in refusal.value.why


def test_missing_volume_is_refused(tmp_path: Path) -> None:
    """With or without a cache."""
    for store in (VolumeStore(tmp_path), VolumeStore(tmp_path, tmp_path / "cache")):
        with pytest.raises(BadRequestError, match=r"7\.tif can't be used"):
            store.open("7")


def write_pair(folder: Path, image: NDArray[Any], labels: NDArray[Any] | None = None) -> None:
    for kind, volume in (("train_images", image), ("train_labels", image % 3 if labels is None else labels)):
        (folder / kind).mkdir(exist_ok=True)
        save_volume(folder / kind / "7.tif", volume)
