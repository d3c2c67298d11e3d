"""Draw docs/demo.svg: the real output of a real launch, as a terminal shows it.

Run as `.venv/bin/python docs/draw_demo.py`; the launch takes about half a minute. tmux is the terminal.
"""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 100, 60
WORDS = ["launch", "--job", "digits", "--mode", "validate", "--price", "1.99", "--yes"]


def record_launch() -> str:
    """Launch on a terminal, and return what is left on its screen when it is over."""
    with tempfile.TemporaryDirectory(prefix="kedge-demo-") as folder:
        tmux = ["tmux", "-f", "/dev/null", "-S", f"{folder}/tmux"]
        kedge = shlex.join(["env", f"KEDGE_STATE_DIR={folder}/s", sys.executable, "-m", "orchestrator.cli", *WORDS])
        size = ["-x", str(WIDTH), "-y", str(HEIGHT), "-c", folder]
        session = ["new-session", "-d", *size, f"{kedge}; tmux -S {folder}/tmux wait-for -S over; sleep 60"]
        subprocess.run([*tmux, *session], check=True)
        subprocess.run([*tmux, "wait-for", "over"], check=True, timeout=300)
        screen = subprocess.run([*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True)
        subprocess.run([*tmux, "kill-server"], check=True)
        return screen.stdout.replace(folder, "~").replace(sys.prefix, "~/kedge/.venv")


def main() -> None:
    """Record a launch and draw it."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ kedge {' '.join(WORDS)}", style="bold"))
    for line in record_launch().rstrip().splitlines():
        console.print(Text.from_ansi(line))
    target = Path(__file__).with_name("demo.svg")
    target.write_text(console.export_svg(title="kedge"), encoding="utf-8")


if __name__ == "__main__":
    main()
