"""A hostile command's output: only text and colours reach the terminal."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.laptop import Laptop
from tests.support.terminals import forbidden, on_terminal

JOB = """
    name: noisy
    run: python3 {noise}
    supervisor: {{kind: nohup, restarts: 0}}
"""


@pytest.fixture
def noisy(laptop: Laptop) -> Laptop:
    """A laptop whose job prints every attack."""
    shutil.copy(Path(__file__).with_name("noise.py"), laptop.home)
    laptop.write_job(JOB.format(noise=laptop.home / "noise.py"))
    return laptop


def test_a_log_does_nothing_to_a_terminal_but_colour_it(noisy: Laptop) -> None:
    """While it is followed, and when it is read later; all of the output is there, and the progress bar as lines.

    A sequence split over two lines, one without an end, C1, other text directions, zero-width characters.
    """
    code, followed = on_terminal(
        [*noisy.program, "launch", "--yes", "--keep"], cwd=noisy.home, env=noisy.env, kind="xterm"
    )
    assert (code, forbidden(followed, kedge_draws=True)) == (0, [])
    assert "\x1b[31mred" in followed
    for log in (followed, *(shown(noisy, "logs", *more) for more in ([], ["-f"]))):
        assert forbidden(log, kedge_draws=True) == []
        assert "\x1b[8m" not in log
        for words in ("abc", "over lines", "photo", "zerowidth", "hidden", "0/3 |   |\n", "3/3 |###|\n"):
            assert words in log
    piped = noisy.kedge("logs")
    assert forbidden(piped) == []
    for more in ([], [noisy.ledger().runs()[0].run_id]):
        status = shown(noisy, "status", *more)
        assert forbidden(status) == []
        assert "\n! spoofed" not in status
    assert "step-1 ! spoofed" in status
    noisy.kedge("teardown", "--yes")


def test_the_bytes_of_a_log_are_for_pipes_and_files(noisy: Laptop) -> None:
    """`--raw` prints the log unchanged, and is refused on a terminal, which would obey it."""
    noisy.kedge("launch", "--yes", "--keep")
    run = noisy.ledger().runs()[0].run_id
    (log,) = noisy.state.glob("machines/*/results/run.log")
    argv = [*noisy.program, "logs", run, "--raw", "--lines", "1000"]
    raw = subprocess.run(argv, cwd=noisy.home, env=noisy.env, capture_output=True, check=True).stdout
    assert raw == log.read_bytes()
    code, said = on_terminal(argv, cwd=noisy.home, env=noisy.env)
    assert code == 2
    assert "less" in said
    assert "photo" not in said
    noisy.kedge("teardown", "--yes")
    (home,) = noisy.home.glob("kedge-results/*/run.log")
    argv = [*noisy.program, "logs", run, "--raw", "--lines", "3"]
    raw = subprocess.run(argv, cwd=noisy.home, env=noisy.env, capture_output=True, check=True).stdout
    assert raw == b"".join(home.read_bytes().splitlines(keepends=True)[-3:])


def shown(laptop: Laptop, *words: str) -> str:
    """Return what a command sends to a terminal."""
    code, sent = on_terminal([*laptop.program, *words], cwd=laptop.home, env=laptop.env, kind="xterm")
    assert code == 0, sent
    return sent
