"""Tables of text. rich is loaded only for one that is wider than the terminal: it costs more than `status` itself."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

_GAP = "  "


class Table:
    """Columns as wide as their widest cell; on a terminal that is too narrow for them, cells are folded."""

    def __init__(self, *columns: str) -> None:
        self._rows: list[tuple[str, ...]] = [columns]

    def add_row(self, *cells: str) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(cells)

    def print(self, *, stderr: bool = False) -> None:
        """Print the columns' names, then the rows: on standard error beside what is printed for scripts."""
        lines = self._lines()
        file = sys.stderr if stderr else sys.stdout
        if file.isatty() and max(map(len, lines)) > shutil.get_terminal_size().columns:
            self._print_folded(file)
        else:
            print("\n".join(lines), file=file)

    def _lines(self) -> list[str]:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        return [
            _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in self._rows
        ]

    def _print_folded(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.table import Table as FoldedTable
        from rich.text import Text

        names, *rows = self._rows
        table = FoldedTable(box=None, pad_edge=False, header_style="")
        for name in names:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        Console(highlight=False, file=file).print(table)
