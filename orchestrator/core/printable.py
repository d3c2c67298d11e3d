"""What of a text may reach a terminal: jobs, machines, clouds and repositories wrote it, and may be hostile.

A terminal obeys what it is sent: escape sequences clear it, rename it, or answer in the user's name; controls of
direction and letters without a width make a text look like another one. None of these is text.
"""

from __future__ import annotations

import re

from orchestrator.core.errors import BadRequestError

# Patterns, which `re` compiles when a text needs them: that takes longer than a quick command has.
_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
# Control characters but for tab and line end; what changes the direction of writing, has no width or is never drawn
# (Unicode's DerivedCoreProperties.txt, Default_Ignorable_Code_Point; annotations); other line ends; halves of letters.
_UNPRINTABLE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
# ECMA-48, and XTerm Control Sequences. No part may begin like another one: a long text takes no longer for it.
_STRING = "[^\x07\x1b\n\x80-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
_SEQUENCE = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # moves, clears, colours, asks
    f"|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f]){_STRING}"  # names windows, links, programs keys
    "|\x1b[ -/]*[0-~]"
)
# Neither 5, which blinks, nor 8, which hides.
_COLOUR = r"(?:0?[0-47]|2[1-57]|[349][0-7]|10[0-7]|[34]9|[34]8;5;\d{1,3}|[34]8;2;\d{1,3};\d{1,3};\d{1,3})"
_COLOURS = rf"\x1b\[(?:{_COLOUR}(?:;{_COLOUR})*)?m"
_SHOWN = 60


def clean(text: str) -> str:
    """Return what of a text is text: whatever it is cut into, nothing in the pieces does more than be read.

    Sequences are taken out whole where they are whole, and lose their first character, which makes them obeyed, where
    they aren't. A carriage return is a line end, so that nothing is written over: a progress bar is a line each time.
    """
    if not _is_suspect(text):
        return text
    lines = re.sub("\r+\n?", "\n", text)
    return re.sub(_UNPRINTABLE, _instead, re.sub(_SEQUENCE, "", lines))


def clean_line(text: str) -> str:
    """Clean what stands among other things on a line: with line ends of its own it could pass for several lines."""
    return re.sub("[\n\t]", " ", clean(text))


def clean_coloured(text: str) -> str:
    """Clean a text, and leave the colours in that a command gives to its log."""
    if "\x1b" not in text:
        return clean(text)
    pieces, start = [], 0
    for colour in re.finditer(_COLOURS, text):
        pieces += [clean(text[start : colour.start()]), colour.group()]
        start = colour.end()
    return "".join([*pieces, clean(text[start:])])


def require_printable(text: str, where: str = "", *, lines: bool = False) -> str:
    """Return a name, a path or a tag that shows what it is.

    Args:
        text: as it was written.
        where: what it belongs to, before which the error stands, such as `--region: `.
        lines: whether it may have several lines, and tabs.

    Raises:
        BadRequestError: it holds what can't be shown.
    """
    if found := find_unprintable(text, lines=lines):
        shown = repr(text)
        raise BadRequestError(
            f"{where}{shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'} holds {found}, which can't be shown",
            why="it would look like another name, and a machine can't read what it boots with",
            fix="write it without that character",
        )
    return text


def find_unprintable(text: str, *, lines: bool = False) -> str:
    """Name the first character that no name, path or tag may hold, as U+001B; empty where there is none.

    Args:
        text: as it was written.
        lines: whether it may have several lines, and tabs.
    """
    if not lines and (found := re.search("[\n\t]", text)):
        return f"U+{ord(found.group()):04X}"
    found = re.search(_UNPRINTABLE, text) if _is_suspect(text) else None
    return f"U+{ord(found.group()):04X}" if found else ""


def _is_suspect(text: str) -> bool:
    """Tell quickly that most texts hold nothing of the kind."""
    return _ASCII.search(text) is not None if text.isascii() else re.search(_UNPRINTABLE, text) is not None


def _instead(found: re.Match[str]) -> str:
    """Show a byte of a name that is no text as such; what can't be seen anyway goes."""
    return "\ufffd" if "\ud800" <= found.group() <= "\udfff" else ""
