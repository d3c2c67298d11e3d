"""Orders checkpoints: the progress of each, the newest of several, and whether one is behind another."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.layout import Layout
from ..base.record import Record
from .checkpoint_formats import is_whole, read_counts
from .listing import is_temporary

if TYPE_CHECKING:
    import argparse

_DECIMAL = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?(?!\w)")
_DIGITS = re.compile(r"\d+")
_STEP = re.compile(r"(?:steps?|iterations?|iters?)[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_EPOCH = re.compile(r"epochs?[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)(\d{1,9})(?!\d)")
_LOG = re.compile(r".*tfevents.*|.*\.(?:csv|html|jpe?g|jsonl|log|md|pdf|png|py|svg|toml|tsv|ya?ml)", re.IGNORECASE)
_TEXT = re.compile(r".*\.(?:json|txt)", re.IGNORECASE)
_SAVED = re.compile(r"checkpoint|ckpt|model|state", re.IGNORECASE)
_CONTENT = "content"
_STATE = "trainer_state.json"
_SLOTS = 10
"""A bare number below this may be a slot of a few that are reused in turn."""
_MOST_FILES = 10_000
_MOST_READ = 20


class CheckpointProgress(Record):
    """One checkpoint and its progress.

    Attributes:
        name: of its file or folder.
        bytes: the size of all its files.
        written: when the last of them was written, in Unix seconds.
        step: its progress; None if unknown.
        kind: what `step` counts; empty if unknown.
        epoch: given in addition to a step that may restart with each epoch; None if not.
    """

    name: str
    bytes: int
    written: float
    step: int | None = None
    kind: str = ""
    epoch: int | None = None

    @property
    def series(self) -> str:
        """The common part of the names of one script's checkpoints."""
        return _DIGITS.sub("#", self.name)

    @property
    def label(self) -> str:
        """Its name, with its step if the name doesn't contain it."""
        return self.name if self.kind != _CONTENT else f"{self.name} (step {self.step})"

    def is_behind(self, other: CheckpointProgress) -> bool | None:
        """Whether it is behind another one of its series; None if unknown.

        If the step is unknown, a file of the same name that is less than half as large counts as behind.
        """
        if self.series != other.series:
            return None
        is_slot = self.kind == "number" and ((other.step or 0) < _SLOTS or _differ_in_several(self.name, other.name))
        if self.step is not None and other.step is not None and self.kind == other.kind and not is_slot:
            is_same_epoch = self.epoch is None or other.epoch is None or self.epoch == other.epoch
            return self.step < other.step if is_same_epoch else (self.epoch or 0) < (other.epoch or 0)
        return True if self.name == other.name and self.bytes * 2 < other.bytes else None


def read_progress(path: Path) -> CheckpointProgress | None:
    """Read a checkpoint's progress; None if there is none, or it is a link to another one, or only logs."""
    try:
        files = list_files(path)
        stats = [file.stat() for file in files]
        saved = [file for file in files if not is_log(file.name)]
        if not saved:
            return None
        step, kind, epoch = _find_step(path, saved)
    except OSError:
        return None
    if not kind and all(_TEXT.fullmatch(file.name) and not _SAVED.search(file.name) for file in saved):
        return None
    size, written = sum(each.st_size for each in stats), max(each.st_mtime for each in stats)
    return CheckpointProgress(path.name, size, written, step, kind, epoch)


def list_files(path: Path) -> list[Path]:
    """List a checkpoint's finished files, sorted; a folder's at any depth."""
    if path.is_symlink():
        return []
    if path.is_file():
        return [path]
    found: list[Path] = []
    for folder, _, names in os.walk(path):
        here = Path(folder)
        found += [here / name for name in names if not (here / name).is_symlink() and (here / name).is_file()]
        if len(found) > _MOST_FILES:
            break
    return sorted(file for file in found if not is_temporary(file.relative_to(path).as_posix()))


def is_sound(path: Path) -> bool | None:
    """Whether a checkpoint is complete; None if its formats don't tell."""
    try:
        verdicts = {is_whole(file) for file in list_files(path)}
    except OSError:
        return False
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def is_log(path: str) -> bool:
    """Whether a file is a log by its name, for people or TensorBoard: scripts write them beside their checkpoints."""
    return bool(_LOG.fullmatch(path.rpartition("/")[2]))


def name_newest(written: Mapping[str, float]) -> str:
    """Return the checkpoint (its name or path) that was written last, preferably one with a number; empty for none."""

    def rank(unit: str) -> tuple[bool, float, str]:
        return bool(_DIGITS.search(unit.rpartition("/")[2])), written[unit], unit

    return max(written, key=rank, default="")


def list_checkpoints(folder: Path) -> list[CheckpointProgress]:
    """List the intact checkpoints of a command that isn't running, newest first.

    Checkpoints with known progress come before all others; text files, which may be logs or settings, come last.
    """
    try:
        paths = [path for path in folder.iterdir() if not is_temporary(path.name)]
    except OSError:
        return []
    sound = [path for path in paths if is_sound(path) is not False]
    found = sorted(filter(None, map(read_progress, sound)), key=order, reverse=True)
    return [each for each in found if each.bytes and not _lacks_files(folder, each, found)]


def order(each: CheckpointProgress) -> tuple[bool, bool, float, str]:
    """Return the sort key of checkpoints; the newest has the largest."""
    return not _TEXT.fullmatch(each.name), bool(each.kind), each.written, each.name


def furthest(found: Iterable[CheckpointProgress], most: int = 50) -> list[CheckpointProgress]:
    """Return the furthest checkpoint of each series, or the newest if progress is unknown."""
    best: dict[str, CheckpointProgress] = {}
    for each in sorted(found, key=order):
        if each.series not in best or not each.is_behind(best[each.series]):
            best[each.series] = each
    return sorted(best.values(), key=order, reverse=True)[:most]


def configure_newest(parser: argparse.ArgumentParser) -> None:
    """Add `--folder`."""
    parser.add_argument("--folder", type=Path, required=True, help="the folder with the checkpoints")


def print_newest(_layout: Layout, args: argparse.Namespace) -> int:
    """Print the path of a folder's newest complete checkpoint; nothing if it has none. The scripts of an export ask."""
    for newest in list_checkpoints(args.folder)[:1]:
        sys.stdout.write(f"{args.folder / newest.name}\n")
    return 0


def _find_step(path: Path, files: list[Path]) -> tuple[int | None, str, int | None]:
    """Return the step, what it counts, and the epoch.

    They are taken from a word in the name, from the content, else from a bare number in the name.
    """
    plain = _DECIMAL.sub("", path.name)
    steps, epochs = ([int(number) for number in pattern.findall(plain)] for pattern in (_STEP, _EPOCH))
    if steps or epochs:
        return (steps or epochs)[-1], "step" if steps else "epoch", epochs[-1] if epochs else None
    state = path / _STATE
    for file in [state] if state in files else files[:_MOST_READ]:
        if counts := read_counts(file):
            return next(iter(counts.values())), _CONTENT, counts.get("epoch")
    numbers = _NUMBER.findall(plain)
    return (int(numbers[-1]), "number", None) if numbers else (None, "", None)


def _differ_in_several(one: str, other: str) -> bool:
    """Whether names of a series differ in more than one number, as names with a date or a score do."""
    numbers = zip(_DIGITS.findall(one), _DIGITS.findall(other), strict=True)
    return len([None for first, second in numbers if first != second]) > 1


def _lacks_files(folder: Path, each: CheckpointProgress, all_of_them: list[CheckpointProgress]) -> bool:
    """Whether a folder has fewer files than the one before it, because writing it was interrupted."""
    path = folder / each.name
    older = [one for one in all_of_them if one.series == each.series and one.written < each.written]
    if not path.is_dir() or not older:
        return False
    before = folder / max(older, key=order).name
    return bool(_names(before) - _names(path))


def _names(folder: Path) -> set[str]:
    return {_DIGITS.sub("#", file.relative_to(folder).as_posix()) for file in list_files(folder)}
