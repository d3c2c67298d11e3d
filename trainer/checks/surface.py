"""Checks the data of `surface`: train.csv, and for each of its rows train_images/ID.tif and train_labels/ID.tif.

Only headers are read. So it finds missing and truncated files, wrong sizes and bit depths, and images without labels,
but not which voxels are unlabelled (2), nor labels without any surface: that would take decoding 25 GB.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

from trainer.checks._findings import Findings
from trainer.checks._tiff import TiffHeader, read_tiff_header

_HELD_OUT = "26002"
_PATCHES = 4
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LARGEST_CSV = 16 << 20
_LARGEST_SIDE = 2048
_COLUMNS = ("id", "scroll_id")
_KINDS = ("train_images", "train_labels")
_COMPRESSIONS = {1, 5, 8, 32773, 32946}
"""None, LZW, deflate, PackBits, and deflate's older number."""


def check(folder: Path, found: Findings) -> None:
    """Check a folder of the competition's data."""
    scrolls = _read_csv(folder / "train.csv", found)
    withdrawn = {name for name in scrolls if (folder / "deprecated_train_images" / f"{name}.tif").is_file()}
    names = [name for name in scrolls if name not in withdrawn]
    usable = [name for name in names if _check_pair(folder, name, found)]
    _check_strangers(folder, set(scrolls), found)
    _count(found, {name: scrolls[name] for name in usable}, len(withdrawn))


def _read_csv(path: Path, found: Findings) -> dict[str, str]:
    """Return the scroll of each id; rows that can't be used are reported."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream.read(_LARGEST_CSV).splitlines())
            columns = reader.fieldnames or ()
            if not set(_COLUMNS) <= set(columns):
                found.add("mis-shaped", path, f"its columns are {', '.join(columns)}, not id, scroll_id")
                return {}
            rows = [((row["id"] or "").strip(), (row["scroll_id"] or "").strip()) for row in reader]
    except FileNotFoundError:
        found.add("missing", path, "it lists the volumes and their scrolls")
        return {}
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        found.add("unreadable", path, str(err))
        return {}
    found.count("rows in train.csv", len(rows))
    return _collect_rows(path, rows, found)


def _collect_rows(path: Path, rows: list[tuple[str, str]], found: Findings) -> dict[str, str]:
    scrolls: dict[str, str] = {}
    for number, (name, scroll) in enumerate(rows, 2):
        if not _ID.fullmatch(name) or name in scrolls:
            why = f"id {name} comes twice" if name in scrolls else f"{name[:80]!r} is no id"
            found.add("misnamed", path, f"line {number}: {why}")
        elif not scroll:
            found.add("mis-shaped", path, f"line {number}: volume {name} has no scroll_id")
        else:
            scrolls[name] = scroll
    return scrolls


def _check_pair(folder: Path, name: str, found: Findings) -> bool:
    """Check a volume and its labels; tell whether both can be used."""
    paths = [folder / kind / f"{name}.tif" for kind in _KINDS]
    image_there, labels_there = (path.is_file() for path in paths)
    if not image_there:
        found.add("missing", paths[0], "train.csv lists it")
    if not labels_there:
        kind, why = ("unlabelled", "its image has no labels") if image_there else ("missing", "train.csv lists it")
        found.add(kind, paths[1], why)
    headers = [_check_tiff(path, found) for path in paths if path.is_file()]
    if len(headers) < len(paths) or None in headers:
        return False
    shapes = [_shape(header) for header in headers if header]
    if shapes[0] != shapes[1]:
        image, labels = (" x ".join(map(str, shape)) for shape in shapes)
        found.add("mis-shaped", paths[1], f"{labels} voxels, its image has {image}")
    return shapes[0] == shapes[1]


def _check_tiff(path: Path, found: Findings) -> TiffHeader | None:
    try:
        header = read_tiff_header(path)
    except (OSError, ValueError) as err:
        size = path.stat().st_size
        found.add("truncated" if "it ends" in str(err) or not size else "unreadable", path, f"{size:,} bytes: {err}")
        return None
    if header.end > header.bytes:
        found.add("truncated", path, f"{header.bytes:,} of {header.end:,} bytes")
        return None
    page = header.pages[0]
    if len({(each.width, each.height) for each in header.pages}) > 1:
        found.add("mis-shaped", path, "its pages differ in size")
    elif any((each.bits, each.samples) != (8, 1) for each in header.pages):
        found.add("mis-shaped", path, f"{page.samples} samples of {page.bits} bits for each voxel, not one of 8")
    elif page.compression not in _COMPRESSIONS:
        found.add("unreadable", path, f"compression {page.compression} isn't LZW, deflate or none")
    elif max(_shape(header)) > _LARGEST_SIDE:
        found.add("mis-shaped", path, f"{' x '.join(map(str, _shape(header)))} voxels are too many")
    else:
        return header
    return None


def _shape(header: TiffHeader) -> tuple[int, int, int]:
    return len(header.pages), header.pages[0].height, header.pages[0].width


def _check_strangers(folder: Path, names: set[str], found: Findings) -> None:
    """Report volumes that train.csv doesn't list: nothing would read them."""
    for kind in _KINDS:
        for path in sorted((folder / kind).glob("*")):
            if path.suffix.lower() not in (".tif", ".tiff") or path.stem not in names:
                found.add("misnamed", path, "train.csv doesn't list it")
            elif path.suffix != ".tif":
                found.add("misnamed", path, f"{path.stem}.tif is read")


def _count(found: Findings, scrolls: dict[str, str], withdrawn: int) -> None:
    found.count("volumes with labels (which voxels are unlabelled is not seen without decoding them)", len(scrolls))
    found.count("volumes that the competition has withdrawn, which aren't used", withdrawn)
    by_scroll = Counter(scrolls.values())
    for scroll, number in sorted(by_scroll.items()):
        found.count(f"volumes of scroll {scroll}", number)
    if scrolls and len(by_scroll) < 2:
        found.add("too few", "train.csv", "one scroll is held out for validation, so there have to be two")
    found.training_samples = _PATCHES * sum(number for scroll, number in by_scroll.items() if scroll != _HELD_OUT)
