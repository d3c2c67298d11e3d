"""The pictures of ImageNet: train/CLASS/* and val/CLASS/*, tar shards, or Hugging Face's parquet files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

from trainer.checks._findings import Findings
from trainer.checks._pictures import find_picture_problem, find_stream_problem
from trainer.checks._tar import DamagedTarError, TarMember, list_members

Layout = Literal["folders", "shards", "parquet"]
KINDS: tuple[Layout, ...] = ("folders", "shards", "parquet")
"""The recipe's data.layout, for --only."""
PICTURES = (".jpeg", ".jpg", ".png")
_SPLITS = ("train", "val")
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.parquet")
_PARQUET = b"PAR1"
_CLASS = re.compile(r"\d{1,9}\s*")


def find_layouts(folder: Path) -> list[Layout]:
    """List the layouts that a folder has: one, if all is well."""
    found: list[Layout] = ["folders"] if any((folder / split).is_dir() for split in _SPLITS) else []
    found += ["shards"] if any(list_shards(folder, split) for split in _SPLITS) else []
    found += ["parquet"] if any(list_parquet(folder, split) for split in ("train", "validation")) else []
    return found


def list_shards(folder: Path, split: str) -> list[Path]:
    """List the tar shards of a split, in order."""
    return sorted(folder.glob(f"*{split}*.tar"))


def list_parquet(folder: Path, split: str) -> list[Path]:
    """List the parquet files of a split, in the folder or its data/, in order."""
    return sorted(folder.glob(f"{split}-*.parquet")) or sorted(folder.glob(f"data/{split}-*.parquet"))


def check(folder: Path, found: Findings) -> None:
    """Check the layout that is asked for, or that the folder has; each of them, if there are several."""
    layouts = [layout for layout in find_layouts(folder) if found.only in ("auto", layout)]
    if not layouts:
        found.add("missing", folder, "train/CLASS/*.jpeg and val/CLASS/*.jpeg, *train*.tar, or train-*.parquet")
    if len(layouts) > 1:
        several = f"it has several layouts: {', '.join(layouts)}"
        found.add("misnamed", folder, f"{several}; the setting is data.layout, here --only")
    for layout in layouts:
        _CHECKS[layout](folder, found)


def _check_folders(folder: Path, found: Findings) -> None:
    classes = {split: list_classes(folder / split) for split in _SPLITS}
    for split, other in (_SPLITS, _SPLITS[::-1]):
        found.count(f"classes in {split}/", len(classes[split]))
        for name in sorted(classes[other] - classes[split]):
            found.add("missing", Path(split, name), f"{other}/ has this class")
        pictures = sum(_check_class(folder / split / name, found) for name in sorted(classes[split]))
        found.count(f"pictures in {split}/", pictures)
        for path in list_files(folder / split):
            kind = "unlabelled" if path.suffix.lower() in PICTURES else "misnamed"
            found.add(kind, path, f"it lies in {split}/ itself, and in none of its classes")
        if split == "train":
            found.training_samples = pictures


def list_classes(folder: Path) -> set[str]:
    """List the folders of a split that aren't hidden, as .ipynb_checkpoints is: its classes."""
    return {path.name for path in folder.glob("*") if path.is_dir() and not path.name.startswith(".")}


def list_files(folder: Path) -> list[Path]:
    """List what isn't hidden and no folder."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith(".") and not path.is_dir())


def _check_class(folder: Path, found: Findings) -> int:
    """Check the pictures of a class, and return their number."""
    files = list_files(folder)
    pictures = [path for path in files if path.suffix.lower() in PICTURES]
    if not pictures:
        found.add("missing", folder, "the class has no pictures")
    for path in files:
        if path.suffix.lower() not in PICTURES:
            found.add("misnamed", path, "a picture ends in .jpeg, .jpg or .png")
        elif problem := find_picture_problem(path):
            found.add(problem[0], path, problem[1])
    for path in sorted(folder / name for name in list_classes(folder)):
        found.add("misnamed", path, "a class has no folders")
    return len(pictures)


def _check_shards(folder: Path, found: Findings) -> None:
    for split in _SPLITS:
        paths = list_shards(folder, split)
        if not paths:
            found.add("missing", f"*{split}*.tar", "there is no shard of this split")
        samples = sum(_check_shard(path, found) for path in paths)
        found.count(f"{split} shards", len(paths))
        found.count(f"samples in {split} shards", samples)
        if split == "train":
            found.training_samples = samples


def _check_shard(path: Path, found: Findings) -> int:
    """Check the headers of a shard and the ends of its pictures, and return the number of its samples."""
    pictures: set[str] = set()
    labels: set[str] = set()
    try:
        with path.open("rb") as stream:
            for member in list_members(stream):
                key, extension = _split_name(member.name)
                pictures |= {key} if extension in PICTURES else set()
                labels |= {key} if extension == ".cls" else set()
                if problem := _find_member_problem(stream, member, extension):
                    found.add(problem[0], path, f"{member.name}: {problem[1]}")
    except (DamagedTarError, OSError) as err:
        found.add("truncated" if isinstance(err, DamagedTarError) else "unreadable", path, str(err))
    for key in sorted(pictures - labels):
        found.add("unlabelled", path, f"{key} has no .cls")
    for key in sorted(labels - pictures):
        found.add("missing", path, f"{key} has a .cls, and no picture")
    return len(pictures | labels)


def _split_name(name: str) -> tuple[str, str]:
    """Split a member's name at the first dot of its last part, as webdataset does."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return f"{folder}{slash}{stem}", f"{dot}{extension.lower()}"


def _find_member_problem(stream: BinaryIO, member: TarMember, extension: str) -> tuple[str, str] | None:
    if extension in PICTURES:
        return find_stream_problem(stream, member.begin, member.size)
    if extension != ".cls":
        return None
    stream.seek(member.begin)
    text = stream.read(min(member.size, 32)).decode(errors="replace")
    return None if _CLASS.fullmatch(text) else ("unlabelled", "it has no number")


def _check_parquet(folder: Path, found: Findings) -> None:
    for split in ("train", "validation"):
        paths = list_parquet(folder, split)
        if not paths:
            found.add("missing", f"{split}-*.parquet", "there is no file of this split")
        found.count(f"{split} parquet files", len(paths))
        for path in paths:
            if problem := _find_parquet_problem(path):
                found.add(problem[0], path, problem[1])
        _check_numbers(paths, found)


def _find_parquet_problem(path: Path) -> tuple[str, str] | None:
    """Look at the magic number on both ends, and whether the footer fits (github.com/apache/parquet-format)."""
    try:
        with path.open("rb") as stream:
            size, head = path.stat().st_size, stream.read(4)
            stream.seek(max(0, size - 8))
            length, end = int.from_bytes(stream.read(4), "little"), stream.read(4)
    except OSError as err:
        return "unreadable", err.strerror or type(err).__name__
    if head != _PARQUET:
        return "unreadable", f"no parquet file: it begins with {head.hex(' ')}" if head else "it is empty"
    if end != _PARQUET or length + 12 > size:
        return "truncated", f"its footer is missing after {size:,} bytes"
    return None


def _check_numbers(paths: list[Path], found: Findings) -> None:
    """Find missing files of a numbered set, as in train-00000-of-00294.parquet."""
    sets: dict[tuple[Path, str, int], set[int]] = {}
    for path in paths:
        if match := _NUMBERED.fullmatch(path.name):
            sets.setdefault((path.parent, match[1], int(match[3])), set()).add(int(match[2]))
    for (parent, stem, total), numbers in sets.items():
        for number in sorted(set(range(total)) - numbers):
            found.add("missing", parent / f"{stem}-{number:05}-of-{total:05}.parquet", f"there are to be {total}")


_CHECKS: dict[Layout, Callable[[Path, Findings], None]] = {
    "folders": _check_folders,
    "shards": _check_shards,
    "parquet": _check_parquet,
}
