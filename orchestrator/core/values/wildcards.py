"""Translates git's wildcards into regular expressions that backtrack no further than to the last star.

Between two stars, `(?>...)` keeps the first match. A `**` matches folders as `*` matches letters.
Source: git's wildmatch.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NOTHING = b"(?!)"
_STAR = b"*"
_SLASH = b"/"
_ANY_FOLDERS = b"**"
# In ASCII order: git's classes are those of C's <ctype.h>.
_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb" \t\n\r\x0b\x0c",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class _NeverError(Exception):
    """The pattern matches nothing: it ends within a set, or after a backslash."""


class _Token(NamedTuple):
    """A star, a slash, any number of folders, or an expression for one byte."""

    kind: bytes
    expression: bytes = b""


def can_match(pattern: bytes) -> bool:
    """Tell whether a pattern can match anything: it doesn't if it ends within a set, or after a backslash."""
    try:
        return bool(list(_tokens(pattern)))
    except _NeverError:
        return False


def translate_name(pattern: bytes) -> bytes:
    """Return the regular expression for a whole name."""
    try:
        tokens = [_Token(_STAR) if token.kind == _ANY_FOLDERS else token for token in _tokens(pattern)]
    except _NeverError:
        return _NOTHING
    return _segment(tokens, b".") + rb"\Z"


def translate_path(pattern: bytes) -> bytes:
    """Return the regular expression for a whole path; `*` stays within a name, and `**` matches whole folders."""
    try:
        chunks = _split(list(_tokens(pattern)), _ANY_FOLDERS)
    except _NeverError:
        return _NOTHING
    if len(chunks) == 1:
        return _chunk(chunks[0]) + rb"\Z"
    # The slashes beside `**` belong to it.
    first, *middle, last = chunks
    head = _chunk(first[:-1]) + b"/" if first else b""
    parts = [rb"(?>(?:[^/]*/)*?" + _chunk(chunk[1:-1]) + b"/)" for chunk in middle if len(chunk) > 1]
    tail = rb"(?:[^/]*/)*?" + _chunk(last[1:]) if last else b".*"
    return head + b"".join(parts) + tail + rb"\Z"


def _chunk(tokens: Sequence[_Token]) -> bytes:
    """Translate names with slashes between them: each matches exactly one name of a path, without alternatives."""
    return b"/".join(b"(?>" + _segment(names, b"[^/]") + rb"(?=/|\Z))" for names in _split(tokens, _SLASH))


def _segment(tokens: Sequence[_Token], letter: bytes) -> bytes:
    pieces = [b"".join(token.expression for token in piece) for piece in _split(tokens, _STAR)]
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    kept = b"".join(b"(?>" + letter + b"*?" + piece + b")" for piece in middle if piece)
    # The last piece has a fixed length, so the star before it backtracks from the end just that far.
    return first + kept + letter + b"*" + last


def _split(tokens: Sequence[_Token], kind: bytes) -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == kind:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _tokens(pattern: bytes) -> Iterator[_Token]:
    at = 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        if letter == b"*":
            end = len(pattern) - len(pattern[at:].lstrip(b"*"))
            alone = (at == 0 or pattern[at - 1 : at] == b"/") and pattern[end : end + 1] in {b"", b"/"}
            yield _Token(_ANY_FOLDERS if alone and end - at > 1 else _STAR)
            at = end
        elif letter == b"[":
            expression, at = _set(pattern, at + 1)
            yield _Token(b"", expression)
        else:
            escaped = letter == b"\\"
            at += 1 + escaped
            yield _literal(pattern[at - 1 : at] if not escaped or at <= len(pattern) else b"", escaped=escaped)


def _literal(letter: bytes, *, escaped: bool) -> _Token:
    if not letter:
        raise _NeverError
    if letter == b"/":
        return _Token(_SLASH)
    if letter == b"?" and not escaped:
        return _Token(b"", b"[^/]")
    return _Token(b"", re.escape(letter))


def _set(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Translate a set in brackets; return the expression, and the position after it."""
    negated = pattern[at : at + 1] in {b"!", b"^"}
    at += negated
    parts: list[bytes] = []
    before: int | None = None
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        part, before, at = _member(pattern, at, before)
        parts.append(part)
    inside = b"".join(parts)
    if negated:
        return b"(?!/)[^" + inside + b"]" if inside else b"[^/]", at + 1
    return (b"(?!/)[" + inside + b"]" if inside else _NOTHING), at + 1


def _member(pattern: bytes, at: int, before: int | None) -> tuple[bytes, int | None, int]:
    """Translate one member of a set: a class, a range's end, or a byte; `before` is the start of a possible range."""
    if pattern[at : at + 2] == b"[:":
        end = pattern.find(b"]", at + 2)
        if end == -1:
            raise _NeverError
        if end > at + 2 and pattern[end - 1 : end] == b":":
            if pattern[at + 2 : end - 1] not in _CLASSES:
                raise _NeverError
            return _CLASSES[pattern[at + 2 : end - 1]], None, end + 1
    if pattern[at : at + 1] == b"-" and before is not None and pattern[at + 1 : at + 2] not in {b"", b"]"}:
        last, at = _byte(pattern, at + 1)
        return (b"\\x%02x-\\x%02x" % (before, last) if before <= last else b""), None, at
    byte, at = _byte(pattern, at)
    return b"\\x%02x" % byte, byte, at


def _byte(pattern: bytes, at: int) -> tuple[int, int]:
    at += pattern[at : at + 1] == b"\\"
    if at >= len(pattern):
        raise _NeverError
    return pattern[at], at + 1
