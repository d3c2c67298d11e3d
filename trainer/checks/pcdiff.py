"""Checks the data of `pcdiff`: each case's two clouds are there, complete, floats, and of shape (M, 3)."""

from __future__ import annotations

from pathlib import Path

from trainer.checks._findings import Findings
from trainer.checks._npy import NpyHeader, read_npy_header
from trainer.checks._npz import UnreadableArrayError
from trainer.checks._skulls import DEFECTS, SUFFIX, Case, list_cases, split_skulls

_FLOATS = (2, 4, 8)
"""Bytes of NumPy's floats."""


def check(folder: Path, found: Findings) -> None:
    """Check the lists, the folders' names, and every cloud that the lists name."""
    split = split_skulls(folder)
    for name, what in split.wrong:
        found.add("misnamed", name, what)
    cases = list_cases(split.train + split.validation)
    if not split.train:
        found.add("missing", "train.csv", f"names no skull, and complete_skull has no NAME{SUFFIX}")
    found.count("skulls for training", len(split.train))
    found.count("skulls for validation", len(split.validation))
    _check_names(folder, found, cases)
    for case in cases:
        _check_case(folder, found, case)
    found.training_samples = len(split.train) * len(DEFECTS)


def read_cloud_header(path: Path) -> NpyHeader:
    """Read the header of a cloud, whose points are as many (M, 3) floats as it says.

    Raises:
        UnreadableArrayError: its `kind` says why: unreadable, mis-shaped, truncated.
    """
    try:
        with path.open("rb") as stream:
            header = read_npy_header(stream)
        size = path.stat().st_size
    except (OSError, ValueError) as err:
        raise UnreadableArrayError("unreadable", str(err)) from err
    is_cloud = len(header.shape) == 2 and header.shape[1] == 3 and header.shape[0] > 0
    if header.kind != "f" or header.item_bytes not in _FLOATS or not is_cloud:
        shape = "x".join(map(str, header.shape)) or "one number"
        why = f"{shape} of {header.kind}{header.item_bytes} instead of Mx3 floats"
        raise UnreadableArrayError("mis-shaped", why)
    if size < header.file_bytes:
        raise UnreadableArrayError("truncated", f"{size:,} of {header.file_bytes:,} bytes")
    return header


def _check_names(folder: Path, found: Findings, cases: list[Case]) -> None:
    """Report folders of unknown defects, and count the clouds that no list names."""
    listed = {name for case in cases for name in (case.defective_file, case.implant_file)}
    for kind in ("defective_skull", "implant"):
        for path in sorted((folder / kind).glob("*")):
            if path.name not in DEFECTS:
                found.add("misnamed", path, f"the defects are {', '.join(DEFECTS)}")
        names = {str(path.relative_to(folder)) for path in (folder / kind).glob(f"*/*{SUFFIX}")}
        if unlisted := len(names - listed):
            found.count(f"clouds in {kind} that no list names", unlisted)


def _check_case(folder: Path, found: Findings, case: Case) -> None:
    has_skull, has_implant = ((folder / name).is_file() for name in (case.defective_file, case.implant_file))
    if not has_skull:
        found.add("missing", case.defective_file, f"the lists name {case.skull}")
    if not has_implant:
        kind, what = ("unlabelled", "the skull is there") if has_skull else ("missing", f"the lists name {case.skull}")
        found.add(kind, case.implant_file, what)
    names = [name for name, there in ((case.defective_file, has_skull), (case.implant_file, has_implant)) if there]
    usable = [_check_cloud(folder / name, found) for name in names]
    found.count("complete cases", int(usable == [True, True]))


def _check_cloud(path: Path, found: Findings) -> bool:
    try:
        read_cloud_header(path)
    except UnreadableArrayError as err:
        found.add(err.kind, path, str(err))
        return False
    return True
