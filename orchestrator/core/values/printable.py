"""Removes what must not reach a terminal from texts of jobs, machines, clouds and repositories, which may be hostile.

A terminal obeys escape sequences in its input: they clear it, rename it, or answer in the user's name. Characters that
change the direction of writing, or have no width, make a text look like another one. All of these are removed.
"""

from __future__ import annotations

import re

from orchestrator.core.errors import BadRequestError

# Patterns as text: `re` compiles them at their first use, because that takes longer than a whole quick command.
_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
# Control characters except tab and line feed; characters that change the direction of writing, have no width or are
# never drawn (Unicode's DerivedCoreProperties.txt, Default_Ignorable_Code_Point; annotations); other line ends; lone
# surrogates.
_UNPRINTABLE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
# ECMA-48, and XTerm Control Sequences. No two parts begin alike, so that matching takes linear time.
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
    """Remove from a text everything that a terminal would obey; any part of the result is safe, too.

    Complete sequences are removed as a whole. Incomplete ones lose their first character; a terminal shows the rest.
    A carriage return becomes a line end, so that nothing is overwritten: each state of a progress bar becomes a line.
    """
    if not _is_suspect(text):
        return text
    lines = re.sub("\r+\n?", "\n", text)
    return re.sub(_UNPRINTABLE, _replacement, re.sub(_SEQUENCE, "", lines))


def clean_line(text: str) -> str:
    """Clean a text that is part of a line: its line ends go too, so that it can't pass for several lines."""
    return re.sub("[\n\t]", " ", clean(text))


def clean_coloured(text: str) -> str:
    """Clean a text, but leave in the colours of a command's log."""
    if "\x1b" not in text:
        return clean(text)
    pieces, start = [], 0
    for colour in re.finditer(_COLOURS, text):
        pieces += [clean(text[start : colour.start()]), colour.group()]
        start = colour.end()
    return "".join([*pieces, clean(text[start:])])


def require_printable(text: str, where: str = "", *, lines: bool = False) -> str:
    """Return a name, a path or a tag if all of it is printable.

    Args:
        text: as the user wrote it.
        where: prefix of the error, such as `--region: `.
        lines: whether it may have several lines, and tabs.

    Raises:
        BadRequestError: it holds a character that can't be shown.
    """
    if found := find_unprintable(text, lines=lines):
        shown = repr(text)
        raise BadRequestError(
            f"{where}{shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'} holds {found}, which can't be shown",
            why="it could pass for another name, and a machine could not read its boot configuration",
            fix="write it without that character",
        )
    return text


def find_unprintable(text: str, *, lines: bool = False) -> str:
    """Return the first character that a name, path or tag may not hold, as U+001B; empty if there is none.

    Args:
        text: as the user wrote it.
        lines: whether it may have several lines, and tabs.
    """
    if not lines and (found := re.search("[\n\t]", text)):
        return f"U+{ord(found.group()):04X}"
    found = re.search(_UNPRINTABLE, text) if _is_suspect(text) else None
    return f"U+{ord(found.group()):04X}" if found else ""


def _is_suspect(text: str) -> bool:
    """Tell quickly whether a text needs a closer look; most don't."""
    return _ASCII.search(text) is not None if text.isascii() else re.search(_UNPRINTABLE, text) is not None


def _replacement(found: re.Match[str]) -> str:
    """Return U+FFFD for a byte that isn't text, and nothing for an invisible character."""
    return "\ufffd" if "\ud800" <= found.group() <= "\udfff" else ""
