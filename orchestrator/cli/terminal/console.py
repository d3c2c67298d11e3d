"""The console for plans and progress: colours and cursor movements are kedge's, and all text is cleaned."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from orchestrator.cli.terminal.streams import raw_stream
from orchestrator.core.values.printable import clean, clean_line

_SEEN = Style(conceal=False, blink=False, blink2=False)


class CleanConsole(Console):
    """A rich console that removes control characters from all text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Clean each piece of text that is drawn; movements of the cursor are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else _cleaned(segment)


def make_console(*, stderr: bool) -> Console:
    """Make a console that wraps between words on a terminal, and never in a pipe."""
    file = raw_stream(stderr=stderr)
    return CleanConsole(file=file, soft_wrap=not file.isatty(), highlight=False, emoji=False)


def print_folded(console: Console, text: str, *, mark: str = "") -> None:
    """Print a sentence; on a narrow terminal the rest is indented on the next lines.

    Args:
        console: where to.
        text: the sentence.
        mark: the style of its first visible character.
    """
    line = clean_line(text)
    if console.is_terminal and not console.soft_wrap:
        deeper = " " * (len(line) - len(line.lstrip()) + 2)
        line = textwrap.fill(
            line, console.width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )
    shown, first = Text(line), len(line) - len(line.lstrip())
    if mark:
        shown.stylize(mark, first, first + 1)
    console.print(shown)


def _cleaned(segment: Segment) -> Segment:
    style = segment.style
    if style is not None and (style.link or style.conceal or style.blink or style.blink2):
        # Text that a log has coloured may neither be hidden nor link to another place than it shows.
        style = style.update_link(None) + _SEEN
    return Segment(clean(segment.text), style)
