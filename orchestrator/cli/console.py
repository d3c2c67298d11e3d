"""The console on which plans and progress are drawn: its colours and its cursor are kedge's, its words are cleaned."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style

from orchestrator.cli.streams import raw_stream
from orchestrator.core.printable import clean, clean_line

_SEEN = Style(conceal=False, blink=False, blink2=False)


class CleanConsole(Console):
    """A console that writes nothing but text, in rich's own colours."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Clean each piece of text of what is drawn; what moves the cursor is rich's."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else _cleaned(segment)


def make_console(*, stderr: bool) -> Console:
    """Make a console that wraps between words on a terminal, and not at all in a pipe."""
    file = raw_stream(stderr=stderr)
    return CleanConsole(file=file, soft_wrap=not file.isatty(), highlight=False, emoji=False)


def print_folded(console: Console, text: str) -> None:
    """Print a sentence; what a terminal has no room for goes on below it, further in."""
    line = clean_line(text)
    if console.is_terminal and not console.soft_wrap:
        deeper = " " * (len(line) - len(line.lstrip()) + 2)
        line = textwrap.fill(
            line, console.width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )
    console.print(line, markup=False)


def _cleaned(segment: Segment) -> Segment:
    style = segment.style
    if style is not None and (style.link or style.conceal or style.blink or style.blink2):
        # Text that a log coloured may neither hide nor lead elsewhere than it says.
        style = style.update_link(None) + _SEEN
    return Segment(clean(segment.text), style)
