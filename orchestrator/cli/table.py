"""Tables of text; rich isn't loaded for them, because it costs more than `status` itself."""

from __future__ import annotations

import shutil
import sys
import textwrap
from itertools import zip_longest

from orchestrator.core.printable import clean_line

_GAP = "  "
_KEPT_WHOLE = 24
"""Letters of a word that a narrow terminal doesn't break: names of types and zones can be copied."""


class Table:
    """Columns as wide as their widest cell; on a terminal that is too narrow for them, cells are folded between words.

    Where not even their words have room, the terminal folds the lines.
    """

    def __init__(self, *columns: str) -> None:
        self._rows: list[tuple[str, ...]] = []
        self.add_row(*columns)

    def add_row(self, *cells: str) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(tuple(map(clean_line, cells)))

    def print(self, *, stderr: bool = False) -> None:
        """Print the columns' names, then the rows: on standard error beside what is printed for scripts."""
        file = sys.stderr if stderr else sys.stdout
        room = shutil.get_terminal_size().columns if file.isatty() else sys.maxsize
        print("\n".join(self.lines(room)), file=file)

    def lines(self, room: int = sys.maxsize) -> list[str]:
        """Render the table for a terminal with room for so many letters in a line."""
        columns = list(zip(*self._rows, strict=True))
        widths = _narrowed(
            [max(map(len, column)) for column in columns],
            [min(_KEPT_WHOLE, max(len(word) for cell in column for word in (*cell.split(), ""))) for column in columns],
            room - len(_GAP) * (len(columns) - 1),
        )
        return [line for row in self._rows for line in _lines_of(row, widths)]


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """Take from the widest columns, as long as their words have room."""
    if sum(least) > room:
        return widths
    narrowed = list(widths)
    while sum(narrowed) > room:
        spare = [number for number, width in enumerate(narrowed) if width > least[number]]
        narrowed[max(spare, key=narrowed.__getitem__)] -= 1
    return narrowed


def _lines_of(row: tuple[str, ...], widths: list[int]) -> list[str]:
    folded = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(row, widths, strict=True)
    ]
    return [
        _GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*folded, fillvalue="")
    ]
