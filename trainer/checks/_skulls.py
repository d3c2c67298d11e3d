"""Which skulls a SkullBreak folder has, and which of them are for training.

    complete_skull/070_surf.npy                 one per skull, named in train.csv and test.csv
    defective_skull/bilateral/070_surf.npy      five per skull: points on its surface, (M, 3)
    implant/bilateral/070_surf.npy              the piece that is missing there

A row of the lists is a path that ends in complete_skull/070_surf.npy or complete_skull/070.nrrd; what comes before is
ignored, because a data set may have moved. Without train.csv all skulls of the folder are for training that test.csv
doesn't name, and without test.csv the last fifth of the skulls is held out.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

# pfriedri/pcdiff-implant, pcdiff/datasets/skullbreak_data.py.
DEFECTS = ("bilateral", "frontoorbital", "parietotemporal", "random_1", "random_2")
SUFFIX = "_surf.npy"
HELD_OUT = 5
"""One skull in so many is held out, if there is no test.csv."""
_ROW = re.compile(r"(?:.*/)?complete_skull/([A-Za-z0-9][A-Za-z0-9_-]{0,63}?)(?:_surf\.npy|\.nrrd)")
_LARGEST_LIST = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A skull with a defect, and the implant that fills it: files relative to the data's folder."""

    skull: str
    defect: str

    @property
    def defective_file(self) -> str:
        """Points of the skull without the piece."""
        return f"defective_skull/{self.defect}/{self.skull}{SUFFIX}"

    @property
    def implant_file(self) -> str:
        """Points of the piece."""
        return f"implant/{self.defect}/{self.skull}{SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Names of skulls; `wrong` has the rows that can't be used: file, and what is wrong."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...] = ()


def list_cases(skulls: tuple[str, ...]) -> list[Case]:
    """List the five cases of each skull, in order."""
    return [Case(skull=skull, defect=defect) for skull in skulls for defect in DEFECTS]


def split_skulls(folder: Path) -> Split:
    """Read the lists of a folder, or make them; nothing is raised for what is wrong in them."""
    wrong: list[tuple[str, str]] = []
    train = _read_list(folder / "train.csv", wrong)
    validation = _read_list(folder / "test.csv", wrong)
    shared = sorted(set(train) & set(validation))
    wrong += [("test.csv", f"{skull} is in train.csv as well") for skull in shared]
    train = train or tuple(skull for skull in _list_folder(folder) if skull not in validation)
    if not validation:
        last = len(train) - max(1, len(train) // HELD_OUT)
        train, validation = train[:last], train[last:]
    return Split(train=train, validation=validation, wrong=tuple(wrong))


def _read_list(path: Path, wrong: list[tuple[str, str]]) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    names: dict[str, None] = {}
    for number, row in enumerate(_read_rows(path, wrong), 1):
        match = _ROW.fullmatch(row[0].strip().replace("\\", "/")) if row else None
        if match and match[1] not in names:
            names[match[1]] = None
        elif row:
            why = "comes twice" if match else f"isn't complete_skull/NAME{SUFFIX}"
            wrong.append((path.name, f"row {number}: {row[0][:80]} {why}"))
    return tuple(names)


def _read_rows(path: Path, wrong: list[tuple[str, str]]) -> list[list[str]]:
    try:
        if path.stat().st_size <= _LARGEST_LIST:
            return list(csv.reader(path.read_text(errors="replace").splitlines()))
        why = "it is too large for a list of skulls"
    except (OSError, csv.Error) as err:
        why = str(err)
    wrong.append((path.name, f"it can't be read: {why}"))
    return []


def _list_folder(folder: Path) -> tuple[str, ...]:
    for pattern in ("complete_skull/*", "defective_skull/*/*"):
        names = {path.name.removesuffix(SUFFIX) for path in folder.glob(pattern) if path.name.endswith(SUFFIX)}
        if names:
            return tuple(sorted(names))
    return ()
