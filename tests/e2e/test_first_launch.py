"""The first launch on a terminal: what it says without a job file, and what it offers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.laptop import Laptop
from tests.support.terminals import on_terminal

OFFER = "Write it? [y/N]"
PLAIN = "No kedge.yaml here or above"


@pytest.fixture
def laptop(laptop: Laptop) -> Iterator[Laptop]:
    """A laptop in a folder without a job file, whose machines are ended."""
    yield laptop
    for run in laptop.json("status", "--ledger"):
        laptop.kedge("teardown", run["run"], "--yes")


def launch(laptop: Laptop, answer: bytes, *words: str) -> str:
    """Launch on a terminal of 80 columns; the only input is the answer."""
    argv = [*laptop.program, "launch", *words]
    code, screen = on_terminal(argv, cwd=laptop.home, env=laptop.env, answer=answer + b"\x04\x04", columns=80)
    assert code == 0, screen
    return screen


def test_a_launch_without_a_job_file_says_so_before_it_plans(laptop: Laptop) -> None:
    """Most users don't want a plain machine; nothing is rented without a yes."""
    screen = launch(laptop, b"y\nn\n")
    assert screen.index(PLAIN) < screen.index("create machine") < screen.index("Go ahead?")
    assert "kedge jobs" in screen
    # Typed-ahead input is at the top, so that no line ends after a question.
    lines = [line.removeprefix("Go ahead? [y/N] ") for line in screen.splitlines() if str(laptop.home) not in line]
    assert max(map(len, lines)) <= 80
    laptop.kedge("launch", code=2)
    assert PLAIN in laptop.errors
    assert "--yes" in laptop.errors
    laptop.kedge("plan")
    assert PLAIN in laptop.errors
    laptop.write_job("{run: true}")
    laptop.kedge("plan")
    assert PLAIN not in laptop.errors


def test_who_says_no_to_plain_ssh_is_not_asked_again(laptop: Laptop) -> None:
    """The user's own configuration stays as it is, and the output says how to install it later."""
    screen = launch(laptop, b"y\nn\n")
    assert screen.index("Go ahead?") < screen.index(OFFER)
    assert "kedge ssh-config --install" in screen
    assert OFFER not in launch(laptop, b"y\n")
    assert not (laptop.home / "ssh_config").exists()


def test_who_says_yes_reaches_the_machine_by_plain_ssh(laptop: Laptop) -> None:
    """With the run's id alone, for all later runs too."""
    assert "ssh RUN" in launch(laptop, b"y\ny\n")
    (run,) = laptop.json("status", "--ledger")
    argv = ["ssh", "-F", str(laptop.home / "ssh_config"), run["run"], "echo in"]
    assert subprocess.run(argv, capture_output=True, env=laptop.env, timeout=60, check=True).stdout == b"in\n"
    assert OFFER not in launch(laptop, b"y\n")


@pytest.mark.parametrize("words", [["--yes"], ["--yes", "--json"], ["--dry-run"]])
def test_with_yes_or_a_dry_run_nothing_is_asked(laptop: Laptop, words: list[str]) -> None:
    """--yes is for scripts: it answers only the plan's question."""
    assert OFFER not in launch(laptop, b"", *words)
    assert not (laptop.home / "ssh_config").exists()


def test_a_configuration_that_can_not_be_read_stops_no_launch(laptop: Laptop) -> None:
    """The question is only an offer."""
    (laptop.home / "ssh_config").mkdir()
    screen = launch(laptop, b"y\n")
    assert "can't be written" in screen
    assert "is running" in screen
