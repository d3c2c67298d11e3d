"""Evaluates a `.kedgeignore`: gitignore's syntax and meaning, in bounded time for any pattern.

Libraries translate a pattern into one regular expression that backtracks at each star, so `*a*a*a*b` takes exponential
time. Here, only the first match of the text between two stars is tried. That is enough, because an earlier match leaves
more room for the rest. The time is bounded by the product of the lengths of pattern and path.

Source: gitignore(5), and git's wildmatch.c and dir.c, with which the tests compare.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.wildcards import translate_name, translate_path

_MOST_PATTERNS = 1_000
_LONGEST_PATTERN = 1_024
_SECONDS = 60.0
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One rule, from one line.

    Attributes:
        ignores: False for a rule with `!`, which includes a path again.
        folders_only: the line ends with a slash.
        by_name: it is matched against names at any depth, rather than against paths.
    """

    ignores: bool
    folders_only: bool
    by_name: bool
    pattern: re.Pattern[bytes]


class IgnoreRules:
    """The rules of one file, at the top of a folder."""

    def __init__(self, text: bytes, *, seconds: float = _SECONDS) -> None:
        """Read the rules.

        Args:
            text: the file's text.
            seconds: the time limit for all calls together.

        Raises:
            BadRequestError: there are more rules, or longer ones, than the limits.
        """
        # The last rule that matches decides.
        self._rules = tuple(reversed([_parse(line) for line in _lines(text)]))
        self._folders = {b"": False}
        self._seconds = seconds
        self._give_up_at = time.monotonic() + seconds

    def ignores(self, path: str) -> bool:
        """Tell whether a file, or a folder above it, is ignored.

        Raises:
            BadRequestError: the rules take too long.
        """
        raw = os.fsencode(path)
        folder = raw.rpartition(b"/")[0]
        return self._is_ignored_folder(folder) or self._decide(raw, is_folder=False)

    def _is_ignored_folder(self, folder: bytes) -> bool:
        known = self._folders.get(folder)
        if known is None:
            known = False
            for path in _prefixes(folder):
                if path not in self._folders:
                    self._folders[path] = known or self._decide(path, is_folder=True)
                known = self._folders[path]
        return known

    def _decide(self, path: bytes, *, is_folder: bool) -> bool:
        self._require_time()
        name = path.rpartition(b"/")[2]
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.pattern.match(name if rule.by_name else path):
                return rule.ignores
        return False

    def _require_time(self) -> None:
        if time.monotonic() > self._give_up_at:
            raise BadRequestError(
                f".kedgeignore takes more than {self._seconds:g} seconds",
                why="it has too many rules with many stars each, for so many files",
                fix="simplify it",
            )


def _lines(text: bytes) -> Sequence[bytes]:
    lines = [line.removesuffix(b"\r") for line in text.removeprefix(_BOM).split(b"\n")]
    patterns = [line for line in map(_trim, lines) if line and not line.startswith(b"#")]
    if len(patterns) > _MOST_PATTERNS:
        raise BadRequestError(f".kedgeignore has more than {_MOST_PATTERNS} rules", fix="simplify it")
    if any(len(pattern) > _LONGEST_PATTERN for pattern in patterns):
        raise BadRequestError(f".kedgeignore has a rule of more than {_LONGEST_PATTERN} bytes", fix="shorten it")
    return patterns


def _trim(line: bytes) -> bytes:
    """Remove spaces at the end, except one after a backslash."""
    trimmed = line.rstrip(b" ")
    escapes = len(trimmed) - len(trimmed.rstrip(b"\\"))
    return trimmed + b" " if escapes % 2 and len(trimmed) < len(line) else trimmed


def _parse(line: bytes) -> _Rule:
    negative = line.startswith(b"!")
    pattern = line[1:] if negative else line
    folders_only = pattern.endswith(b"/")
    pattern = pattern[:-1] if folders_only else pattern
    by_name = b"/" not in pattern
    written = translate_name(pattern) if by_name else translate_path(pattern.removeprefix(b"/"))
    return _Rule(
        ignores=not negative,
        folders_only=folders_only,
        by_name=by_name,
        pattern=re.compile(written, re.DOTALL),
    )


def _prefixes(folder: bytes) -> Iterator[bytes]:
    end = -1
    while (end := folder.find(b"/", end + 1)) != -1:
        yield folder[:end]
    yield folder
