"""Tables of text, without rich, whose loading takes longer than `status` itself."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from orchestrator.core.values.printable import clean_line

_GAP = "  "
_KEPT_WHOLE = 24
"""Words up to this length aren't broken on a narrow terminal."""
_NARROWEST = 20
"""The least width of a value beside the name of its column."""


class Table:
    """Columns as wide as their widest cell; on a narrow terminal, cells are folded between words.

    If not even their words fit, each row becomes a paragraph, with one line for each cell.
    """

    def __init__(self, *columns: str, names: Collection[str] = ()) -> None:
        """Create a table.

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
        """Print the header, then the rows: on standard error if standard output is for scripts."""
        file = sys.stderr if stderr else sys.stdout
        room = shutil.get_terminal_size().columns if file.isatty() else sys.maxsize
        print("\n".join(self.lines(room)), file=file)

    def lines(self, room: int = sys.maxsize) -> list[str]:
        """Render the table for a terminal of this width."""
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
        """Write a row's marks and its first name on one line, and each other non-empty cell below it."""
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
    """Reduce the widest columns, as long as their words fit."""
    narrowed = list(widths)
    while sum(narrowed) > room:
        spare = [number for number, width in enumerate(narrowed) if width > least[number]]
        narrowed[max(spare, key=narrowed.__getitem__)] -= 1
    return narrowed
