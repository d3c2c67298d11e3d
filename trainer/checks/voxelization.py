"""The data of `voxelization`: `NNN_<defect>_pc.npz[points]` and `NNN_<defect>_vox.npz[psr]` in one folder.

Layout and names are those of pfriedri/pcdiff-implant, voxelization/utils/preproc_skullbreak.py (SkullFix has no
defect in its names; augmented pairs have a number behind it). `train.csv` and `eval.csv`, if there, have one pair a
line: a path without `_pc.npz`, of which only the last part counts, because the rest is of the machine that wrote it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainer.checks._findings import Findings
from trainer.checks._npy import NpyHeader
from trainer.checks._npz import UnreadableArrayError, open_npz

POINTS = 30_720
"""Points of a cloud: 27,648 of the defective skull, then 3,072 of the implant."""
TRAIN_LIST, EVALUATION_LIST = "train.csv", "eval.csv"
LARGEST_GRID = 1024
_SMALLEST_GRID = 8
_NAME = re.compile(r"(\d{3,6}(?:_[a-z]+[\d_]*)?)_(pc|vox)\.npz")
_LONGEST_LIST = 10_000_000
_POINT_TYPES = ("<f4", "<f8")
_GRID_TYPES = ("<f4",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A point cloud and its volume; `name` is `NNN_<defect>`."""

    name: str
    points: Path
    volume: Path

    @property
    def skull(self) -> str:
        """The skull's number, which its defects share."""
        return self.name.partition("_")[0]


def find_pairs(folder: Path) -> tuple[dict[str, Pair], list[Path]]:
    """Find all names that have a cloud or a volume, whether both are there or not; and archives with other names."""
    matches = [(path, _NAME.fullmatch(path.name)) for path in sorted(folder.glob("*.npz"))]
    names = sorted({match[1] for _, match in matches if match})
    pairs = {name: _make_pair(folder, name) for name in names}
    return pairs, [path for path, match in matches if not match]


def read_list(path: Path) -> list[str]:
    """Read the names of train.csv or eval.csv.

    Raises:
        ValueError: it is no list of one path a line.
        OSError: it can't be read.
    """
    if path.stat().st_size > _LONGEST_LIST:
        raise ValueError("it is too long for a list of pairs")
    lines = [line.strip().strip('"') for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if line]
    wrong = next((row for row in rows if "," in row), None)
    if wrong is not None:
        raise ValueError(f"a line has one path without _pc.npz, and one is {wrong[:80]!r}")
    return [row.replace("\\", "/").rpartition("/")[2].removesuffix("_pc.npz").removesuffix("_vox.npz") for row in rows]


def compare_lists(train: list[str] | None, evaluation: list[str] | None) -> list[tuple[str, str, str]]:
    """List what is wrong with the two lists together: the kind of the finding, the list's name, and what it is.

    Args:
        train: the names in train.csv; None if there is no such file.
        evaluation: those in eval.csv.
    """
    if (train is None) != (evaluation is None):
        absent = TRAIN_LIST if train is None else EVALUATION_LIST
        return [("missing", absent, "the other list is there; without both, whole skulls are held out")]
    shared = sorted(set(train or ()) & set(evaluation or ()))
    return [("misnamed", EVALUATION_LIST, f"{name[:80]} is in {TRAIN_LIST} as well") for name in shared]


def read_grid_header(path: Path) -> NpyHeader:
    """Read what the volume in a `_vox.npz` is.

    Raises:
        UnreadableArrayError: its `kind` says why: truncated, unreadable, missing, mis-shaped.
    """
    header = _read_header(path, "psr", _GRID_TYPES)
    shape = header.shape
    if len(shape) != 3 or len(set(shape)) != 1 or not _SMALLEST_GRID <= shape[0] <= LARGEST_GRID:
        raise UnreadableArrayError("mis-shaped", f"{_show(shape)}, and a cube of 32 to 512 nodes is needed")
    return header


def check(folder: Path, found: Findings) -> None:
    """Check pairs, headers, and lists."""
    pairs, others = find_pairs(folder)
    found.count("point clouds", sum(pair.points.is_file() for pair in pairs.values()))
    found.count("volumes", sum(pair.volume.is_file() for pair in pairs.values()))
    for path in others:
        found.add("misnamed", path, "a name is NNN_<defect>_pc.npz or NNN_<defect>_vox.npz")
    if not pairs:
        found.add("missing", folder, "there is no NNN_<defect>_pc.npz")
    _check_arrays(pairs, found)
    lists = {name: _check_list(folder / name, pairs, found) for name in (TRAIN_LIST, EVALUATION_LIST)}
    _count_samples(pairs, lists, found)


def hold_out(pairs: dict[str, Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those for training and for validation: all defects of a skull are on the same side.

    The last skulls by number are held out, at least one of several.
    """
    skulls = sorted({pair.skull for pair in pairs.values()})
    count = min(max(1, round(len(skulls) * share)), len(skulls) - 1)
    held = set(skulls[len(skulls) - count :])
    train = [pair for pair in pairs.values() if pair.skull not in held]
    return train, [pair for pair in pairs.values() if pair.skull in held]


def _make_pair(folder: Path, name: str) -> Pair:
    return Pair(name=name, points=folder / f"{name}_pc.npz", volume=folder / f"{name}_vox.npz")


def _check_arrays(pairs: dict[str, Pair], found: Findings) -> None:
    sizes: dict[int, list[Path]] = {}
    for pair in pairs.values():
        if not pair.points.is_file():
            found.add("missing", pair.points, f"{pair.volume.name} has no point cloud")
        else:
            _check_points(pair.points, found)
        if not pair.volume.is_file():
            found.add("unlabelled", pair.points, f"there is no {pair.volume.name}")
        elif (size := _check_grid(pair.volume, found)) is not None:
            sizes.setdefault(size, []).append(pair.volume)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: len(sizes[size]))
        for size, paths in sizes.items():
            for path in paths if size != usual else []:
                found.add("mis-shaped", path, f"{size} nodes a side, and {usual} in the others")


def _check_points(path: Path, found: Findings) -> None:
    try:
        header = _read_header(path, "points", _POINT_TYPES)
    except UnreadableArrayError as err:
        found.add(err.kind, path, str(err))
        return
    if header.shape != (POINTS, 3):
        found.add("mis-shaped", path, f"{_show(header.shape)}, and {_show((POINTS, 3))} is needed")


def _check_grid(path: Path, found: Findings) -> int | None:
    try:
        return read_grid_header(path).shape[0]
    except UnreadableArrayError as err:
        found.add(err.kind, path, str(err))
        return None


def _read_header(path: Path, name: str, dtypes: tuple[str, ...]) -> NpyHeader:
    with open_npz(path, name) as (header, _):
        if header.dtype not in dtypes:
            raise UnreadableArrayError("mis-shaped", f"dtype {header.dtype}, and {' or '.join(dtypes)} is needed")
        return header


def _check_list(path: Path, pairs: dict[str, Pair], found: Findings) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        names = read_list(path)
    except (OSError, ValueError) as err:
        found.add("unreadable", path, str(err))
        return None
    for name in names:
        if name not in pairs:
            found.add("missing", path, f"it lists {name[:80]}, which is not there")
    return names


def _count_samples(pairs: dict[str, Pair], lists: dict[str, list[str] | None], found: Findings) -> None:
    train, evaluation = lists[TRAIN_LIST], lists[EVALUATION_LIST]
    for kind, name, what in compare_lists(train, evaluation):
        found.add(kind, name, what)
    if train is not None and evaluation is not None:
        found.training_samples = len(train)
        return
    if len({pair.skull for pair in pairs.values()}) == 1:
        found.add("too few", found.folder, "one skull; a second one is needed for validation")
        return
    found.training_samples = len(hold_out(pairs, HELD_OUT)[0]) if pairs else 0


def _show(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{side:,}" for side in shape) or "a single number"


HELD_OUT = 0.2
"""The recipe's default share of skulls for validation."""
