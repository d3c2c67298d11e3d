"""Chooses among a run's results: by a few names, such as `best`, and by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import upper_folders
from orchestrator.core.values.units import format_bytes
from orchestrator.core.values.wildcards import can_match, translate_path

LAST = "last"
_BEST = ("best", "best[!a-z]*", "*[!a-z]best", "*[!a-z]best[!a-z]*")
"""`best` as a word: not in `bestiary.txt`."""
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all": ("**",),
        "best": (*_BEST, "output/model.safetensors"),
        LAST: ("checkpoints/*last*", "checkpoints/*latest*"),
        "curves": ("*curve*", "*history*", "*tfevents*"),
        "logs": ("*.log", "logs"),
        "metrics": ("*metric*", "*.csv", "*.jsonl", "*history*", "status.json"),
        "onnx": ("*.onnx", "*.onnx.data"),
        "plots": ("*.png", "*.jpg", "*.svg", "*.pdf", "*.html"),
        "samples": ("samples", "*_samples", "*sample*.png", "*sample*.jpg", "*sample*.np[yz]", "*sample*.ply"),
    }
)
"""What `--only` knows by name -> patterns, which ignore case; `last` also means each task's newest checkpoint."""

_WILDCARD = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"\d+")
_PART = re.compile(r"[-_.]?(?:(?:rank|shard|part)[-_=]?\d+|\d+[-_]of[-_]\d+)", re.IGNORECASE)
"""What tells the files of one checkpoint apart, such as `rank1` or `00001-of-00004`; none is newer than the others."""
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
_CHECKPOINTS = "checkpoints"
_STEP = re.compile(r"step-(\d{8,12})(\.safetensors)?")
"""A checkpoint of the bundled trainer from which a run resumes: a file, or a folder of shards (trainer/README.md)."""
_INDEX = "index.json"
"""The file that makes a folder of shards complete."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is fetched of the results that a run has.

    Attributes:
        only: names and patterns, any of which has to match; empty for all that the job's outputs want.
        outputs: paths in the results with wildcards: of the folders before their first wildcard, only what matches one
            of them is fetched, unless `only` says what is.
        leaves_steps: the bundled trainer's step checkpoints that are stored are left, except the newest of each task,
            unless `only` says what is fetched.
        stored: the paths and SHA-256 sums that the object store has, of all machines.
    """

    only: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    leaves_steps: bool = False
    stored: frozenset[tuple[str, str]] = frozenset()

    def of(self, files: Sequence[ResultFile]) -> list[ResultFile]:
        """Return the files that are fetched, in the same order."""
        if self.only:
            named = _newest_checkpoints(files) if LAST in self.only else frozenset[str]()
            known = [_anywhere(pattern) for word in self.only for pattern in NAMES.get(word, ())]
            own = [_anywhere(word) for word in self.only if word not in NAMES]
            return [
                file
                for file in files
                if _unit(file.path) in named or matches(file.path, known, ignore_case=True) or matches(file.path, own)
            ]
        folders, older = [literal_folder(pattern) for pattern in self.outputs], self._older_steps(files)
        return [
            file
            for file in files
            if _unit(file.path) not in older
            and (not any(file.path.startswith(f"{folder}/") for folder in folders) or matches(file.path, self.outputs))
        ]

    def require_some(self, files: Sequence[ResultFile], chosen: Sequence[ResultFile]) -> None:
        """Refuse a choice of nothing.

        Raises:
            BadRequestError: there are files, and none was chosen.
        """
        if files and not chosen and self.only:
            there = ", ".join(file.path for file in files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
            raise BadRequestError(
                f"no result is called {' or '.join(self.only)}",
                why=f"there are {there}",
                fix=f"name one of {', '.join(NAMES)}, or give a pattern such as '*.png' or 'checkpoints/step-*'",
            )

    def describe_rest(self, files: Sequence[ResultFile], chosen: Sequence[ResultFile]) -> str:
        """Say what isn't fetched; empty if all is."""
        came, older = {file.path for file in chosen}, self._older_steps(files)
        rest = [file for file in files if file.path not in came]
        steps = [file for file in rest if _unit(file.path) in older]
        others = [file for file in rest if _unit(file.path) not in older]
        why = f"--only {','.join(self.only)}" if self.only else "the job's `outputs`"
        said = [f"not fetched, by {why}: {describe_amount(others)}"] if others else []
        if steps:
            count = "1 older checkpoint" if len(older) == 1 else f"{len(older):,} older checkpoints"
            said.append(
                f"not fetched: {count}, {format_bytes(_bytes(steps))}, which stay in the object store; "
                "`kedge fetch --only all` brings them"
            )
        return "; ".join(said)

    def _older_steps(self, files: Sequence[ResultFile]) -> frozenset[str]:
        if not self.leaves_steps or self.only:
            return frozenset()
        lost = {_unit(file.path) for file in files if (file.path, file.sha256) not in self.stored}
        return _older_steps(files) - lost


EVERYTHING = Choice()


def describe_amount(files: Sequence[ResultFile]) -> str:
    """Say how much is fetched."""
    return f"{'1 file' if len(files) == 1 else f'{len(files):,} files'}, {format_bytes(_bytes(files))}"


def parse_only(text: str | None) -> tuple[str, ...]:
    """Return the names and patterns of `--only best,curves`; none if it isn't given.

    Raises:
        BadRequestError: one is missing.
    """
    if text is None:
        return ()
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word and not can_match(word.encode()):
            raise BadRequestError(
                f"--only {text}: {word} can't match anything",
                why="it ends within a set of letters, or after a backslash",
                fix="end the set, as in '[ab]*.png'",
            )
    if not all(words):
        raise BadRequestError(
            f"--only {text}: a name is missing", fix=f"write for example --only best,curves; names: {', '.join(NAMES)}"
        )
    return words


def has_wildcard(path: str) -> bool:
    """Tell whether a path is a pattern."""
    return bool(_WILDCARD.search(path))


def literal_folder(pattern: str) -> str:
    """Return the folder of a pattern before its first wildcard; empty if it begins with one."""
    parts = pattern.split("/")
    return "/".join(parts[: next((at for at, part in enumerate(parts) if has_wildcard(part)), len(parts))])


def matches(path: str, patterns: Iterable[str], *, ignore_case: bool = False) -> bool:
    """Tell whether a path, or a folder that it lies in, matches one of the patterns as a whole."""
    flags = re.DOTALL | re.IGNORECASE if ignore_case else re.DOTALL
    places = [_encode(each) for each in (path, *upper_folders(path))]
    return any(_compiled(pattern, flags).match(place) for pattern in patterns for place in places)


@cache
def _compiled(pattern: str, flags: re.RegexFlag) -> re.Pattern[bytes]:
    return re.compile(translate_path(_encode(pattern)), flags)


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _anywhere(pattern: str) -> str:
    """Return a pattern that matches in any folder, unless it begins with a slash."""
    return pattern[1:] if pattern.startswith("/") else f"**/{pattern}"


def _bytes(files: Iterable[ResultFile]) -> int:
    return sum(file.bytes for file in files if not file.link)


def _newest_checkpoints(files: Iterable[ResultFile]) -> frozenset[str]:
    """Return the paths of the newest checkpoints: of each series of names, those with the greatest numbers."""
    units = {
        unit
        for file in files
        if (unit := _unit(file.path)) and not matches(unit.rpartition("/")[2], _BEST, ignore_case=True)
    }
    newest: dict[tuple[str, str], list[int]] = {}
    for unit in units:
        newest[_series(unit)] = max(newest.get(_series(unit), []), _numbers(unit))
    return frozenset(unit for unit in units if _numbers(unit) == newest[_series(unit)])


def _older_steps(files: Iterable[ResultFile]) -> frozenset[str]:
    """Return the paths of the bundled trainer's complete step checkpoints but for the newest in each folder."""
    paths = {file.path for file in files}
    steps: dict[str, dict[str, int]] = {}
    for unit in {_unit(path) for path in paths}:
        folder, _, name = unit.rpartition("/")
        found = _STEP.fullmatch(name)
        if found and (found[2] or f"{unit}/{_INDEX}" in paths):
            steps.setdefault(folder, {})[unit] = int(found[1])
    return frozenset(unit for each in steps.values() for unit, step in each.items() if step < max(each.values()))


def _series(unit: str) -> tuple[str, str]:
    """Return a checkpoint's folder and what its name has in common with the others; a suffix doesn't count."""
    folder, _, name = unit.rpartition("/")
    return folder, _DIGITS.sub("#", _PART.sub("", _SUFFIX.sub("", name)))


def _unit(path: str) -> str:
    """Return the file or folder directly in a folder of checkpoints that a path belongs to; empty if there is none."""
    parts = path.split("/")
    return "/".join(parts[: parts.index(_CHECKPOINTS) + 2]) if _CHECKPOINTS in parts[:-1] else ""


def _numbers(unit: str) -> list[int]:
    return [int(number) for number in _DIGITS.findall(_PART.sub("", unit.rpartition("/")[2]))]
