"""What `make` would do on a fresh checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever made."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(_ROOT / name, tmp_path)
    shutil.copytree(_ROOT / "locks", tmp_path / "locks")
    return tmp_path


def plan(checkout: Path, target: str) -> list[str]:
    """List the commands that `make TARGET` would run, in their order."""
    argv = ["make", "--no-print-directory", "--dry-run", target]
    return subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_demo_installs_the_trainer_and_no_development_tools(checkout: Path) -> None:
    """Who only looks waits for no linter, box or type checker."""
    commands = plan(checkout, "demo")
    assert "bash infra/setup/python.sh .venv trainer" in commands
    assert not any("python.sh .venv tests" in command or "system.sh tests" in command for command in commands)


def test_what_is_installed_is_locked_but_for_torch(checkout: Path) -> None:
    """By hash, the tools that build kedge too: no step resolves anything by itself, except torch."""
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >>"{checkout}/called"\n')
    python.chmod(0o755)
    subprocess.run(["bash", _ROOT / "infra/setup/python.sh", ".venv", "trainer"], cwd=checkout, check=True)
    called = [line for line in (checkout / "called").read_text().splitlines() if " install " in line]
    steps = [line.partition("--disable-pip-version-check ")[2] for line in called]
    assert steps == [
        "--require-hashes -r locks/trainer.txt",
        "-c constraints.txt torch",
        "--no-deps --no-build-isolation -e .",
    ]


def test_an_environment_for_tests_does_for_the_demo(checkout: Path) -> None:
    """`make demo` after `make test` installs nothing."""
    assert "bash infra/setup/python.sh .venv tests" in plan(checkout, "test")
    (checkout / ".venv").mkdir()
    for name in (".ready", ".ready-demo"):
        (checkout / ".venv" / name).touch()
    assert not any("python.sh" in command for command in plan(checkout, "demo"))


def test_what_test_machines_need_is_made_before_any_test(checkout: Path) -> None:
    """A Debian is unpacked in set-up: tests that wait 30 s for a machine would fail on a computer with empty caches."""
    commands = plan(checkout, "test")
    prepared = commands.index(".venv/bin/python -m tests.cloudbox.nspawn_needs")
    assert prepared < next(index for index, command in enumerate(commands) if "/pytest" in command)
