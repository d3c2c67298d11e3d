"""Checks fresnel's data: X.jpg, and for each features/X_dinov2.bin and features/X_depth.bin (500 and 1,000 files)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainer.checks._findings import Findings
from trainer.checks._pictures import find_picture_problem

_PICTURES = (".jpg", ".jpeg", ".png")
# The longer names end like the shorter ones' don't: `X_dinov2_base.bin` doesn't end in `_dinov2.bin`.
_SUFFIXES = {"small": "_dinov2.bin", "base": "_dinov2_base.bin", "large": "_dinov2_large.bin"}
KINDS = tuple(_SUFFIXES)
"""The recipe's data.features, for --only."""
_DEPTH = "_depth.bin"
_PATCH_BYTES = 4 * 37 * 37
_DEPTH_BYTES = 4 * 256 * 256
_HELD_OUT = 0.1
"""The recipe's default for data.held_out."""
MAX_SAMPLES = "data.max_images"
"""The recipe's setting that is checked with --max-samples."""


def check(folder: Path, found: Findings) -> None:
    """Check the pictures' first and last bytes, and the names and sizes of all other files."""
    pictures = _find_pictures(folder, found)
    files = {path.name: path for path in _list_files(folder / "features")}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    _check_kinds(pictures, sizes, found)
    _check_depths(pictures, sizes, found)
    known = {stem + suffix for stem in pictures for suffix in (*_SUFFIXES.values(), _DEPTH)}
    for name in sizes:
        if name.endswith(".bin") and name not in known:
            found.add("misnamed", f"features/{name}", "there is no picture with this name")
    used = min(len(pictures), found.max_samples or len(pictures))
    found.training_samples = used - round(_HELD_OUT * used)


def _list_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.is_file())


def _find_pictures(folder: Path, found: Findings) -> list[str]:
    """Return the names of the pictures without suffix, and check that they are whole."""
    stems: dict[str, str] = {}
    found.count("pictures", 0)
    for path in _list_files(folder):
        if path.suffix.lower() in _PICTURES:
            found.count("pictures")
            if problem := find_picture_problem(path):
                found.add(problem[0], path, problem[1])
            if path.stem in stems:
                found.add("misnamed", path, f"the same name as {stems[path.stem]}: they would share their features")
            stems[path.stem] = path.name
        elif path.suffix == ".bin":
            found.add("misnamed", path, "belongs into features/")
    if not stems:
        found.add("missing", folder, "there are no pictures X.jpg in it")
    return list(stems)


def _check_kinds(pictures: list[str], sizes: dict[str, int], found: Findings) -> None:
    """Check the features that the run will read: of the kind that is asked for, else of the only one."""
    wanted = KINDS if found.only == "auto" else (found.only,)
    kinds = [kind for kind in wanted if any(name.endswith(_SUFFIXES[kind]) for name in sizes)]
    if pictures and not kinds:
        what = f"no file X{_SUFFIXES[wanted[0]]}: python -m trainer preprocess gaussian makes them"
        found.add("missing", "features", what)
    if len(kinds) > 1:
        what = f"it has those of {' and '.join(kinds)}; the setting is data.features, here --only"
        found.add("misnamed", "features", what)
    for kind in kinds:
        _check_features(kind, pictures, sizes, found)


def _check_features(kind: str, pictures: list[str], sizes: dict[str, int], found: Findings) -> None:
    """Check that each picture has features of one kind, all as wide as most of them are."""
    suffix = _SUFFIXES[kind]
    there = [stem for stem in pictures if stem + suffix in sizes]
    found.count(f"files of features of DINOv2 {kind}", len(there))
    for stem in pictures:
        if stem + suffix not in sizes:
            found.add("missing", f"features/{stem}{suffix}", "other pictures have features of this kind")
    whole = [sizes[stem + suffix] for stem in there if _is_whole(sizes[stem + suffix])]
    usual = max(set(whole), key=lambda size: (whole.count(size), size), default=0)
    for stem in there:
        size, path = sizes[stem + suffix], f"features/{stem}{suffix}"
        if not _is_whole(size):
            what = f"{size:,} of {usual:,} bytes" if usual else f"{size:,} bytes are no multiple of {_PATCH_BYTES:,}"
            found.add("truncated" if size < usual or not size else "mis-shaped", path, what)
        elif size != usual:
            wide = f"{size // _PATCH_BYTES} features, most have {usual // _PATCH_BYTES}"
            found.add("mis-shaped", path, wide)


def _is_whole(size: int) -> bool:
    return size > 0 and size % _PATCH_BYTES == 0


def _check_depths(pictures: list[str], sizes: dict[str, int], found: Findings) -> None:
    found.count("depths", sum(stem + _DEPTH in sizes for stem in pictures))
    for stem in pictures:
        path, size = f"features/{stem}{_DEPTH}", sizes.get(stem + _DEPTH)
        if size is None:
            found.add("missing", path, "each picture has a depth")
        elif size != _DEPTH_BYTES:
            kind = "truncated" if size < _DEPTH_BYTES else "mis-shaped"
            found.add(kind, path, f"{size:,} of {_DEPTH_BYTES:,} bytes")
