"""Tables of text; rich isn't loaded for them, because it costs more than `status` itself."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from orchestrator.core.printable import clean_line

_GAP = "  "
_KEPT_WHOLE = 24
"""Letters of a word that a narrow terminal doesn't break, wherever it stands."""
_NARROWEST = 20
"""Letters that a value has room for at least, beside the name of its column."""


class Table:
    """Columns as wide as their widest cell; on a terminal that is too narrow for them, cells are folded between words.

    Where not even their words have room, each row becomes a paragraph, with a line for each cell.
    """

    def __init__(self, *columns: str, names: Collection[str] = ()) -> None:
        """Begin a table.

        Args:
            columns: their names.
            names: the columns whose words are never broken, however long: names of runs, jobs, regions and types, which
                people copy.
        """
        self._columns = columns
        self._names = frozenset(names)
        self._rows: list[tuple[str, ...]] = []

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
        rows = [self._columns, *self._rows]
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        least = [self._least(name, column) for name, column in zip(self._columns, columns, strict=True)]
        left = room - len(_GAP) * (len(columns) - 1)
        if sum(least) > left:
            return [line for row in self._rows for line in self._paragraph(row, room)]
        return [line for row in rows for line in self._lines_of(row, _narrowed(widths, least, left))]

    def _least(self, name: str, column: Sequence[str]) -> int:
        longest = max(len(word) for cell in column for word in (*cell.split(), ""))
        return longest if name in self._names else min(_KEPT_WHOLE, longest)

    def _lines_of(self, row: Sequence[str], widths: list[int]) -> list[str]:
        folded = [self._fold(name, cell, width) for name, cell, width in zip(self._columns, row, widths, strict=True)]
        return [
            _GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
            for line in zip_longest(*folded, fillvalue="")
        ]

    def _fold(self, name: str, cell: str, width: int) -> list[str]:
        if len(cell) <= width:
            return [cell]
        return textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=name not in self._names)

    def _paragraph(self, row: Sequence[str], room: int) -> Iterator[str]:
        """Write a row's marks and its first name on a line, and each other cell that holds something below it."""
        cells = list(zip(self._columns, row, strict=True))
        lead = next(number for number, (name, _) in enumerate(cells) if name) + 1
        yield _GAP.join(cell for _, cell in cells[:lead] if cell)
        width = max((len(name) for name, _ in cells[lead:]), default=0)
        for name, cell in cells[lead:]:
            if cell:
                folded = self._fold(name, cell, max(room - width - 2 * len(_GAP), _NARROWEST))
                yield f"{_GAP}{name:<{width}}{_GAP}{folded[0]}"
                yield from (f"{'':<{width + 2 * len(_GAP)}}{more}" for more in folded[1:])


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """Take from the widest columns, as long as their words have room."""
    narrowed = list(widths)
    while sum(narrowed) > room:
        spare = [number for number, width in enumerate(narrowed) if width > least[number]]
        narrowed[max(spare, key=narrowed.__getitem__)] -= 1
    return narrowed
