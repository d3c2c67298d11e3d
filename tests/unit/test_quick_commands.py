"""Commands that only look answer at once: they import nothing slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.laptop import Laptop

SLOW = {"pydantic", "fabric", "paramiko", "jinja2", "boto3", "pydo", "torch", "tenacity"}
SCRIPT = """
import json, sys
from orchestrator.cli.program import KedgeProgram
try:
    KedgeProgram().run(["kedge", *sys.argv[1:]])
except SystemExit as end:
    code = end.code
print()
print(json.dumps([code, sorted(sys.modules)]))
"""


@pytest.mark.parametrize(
    "words", [["--list"], ["help", "launch"], ["status"], ["status", "--all", "--ledger"], ["cost"], ["stop"]]
)
def test_a_quick_command_loads_nothing_slow(laptop: Laptop, words: list[str]) -> None:
    """No parser of job files, no template engine, no SSH library, no SDK."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=laptop.home,
        env=laptop.env,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code in (0, 2), done.stderr
    assert SLOW & set(modules) == set()


def test_listing_loads_nothing_but_invoke_and_the_tasks(laptop: Laptop) -> None:
    """`--list` costs what bare invoke costs."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "--list"],
        cwd=laptop.home,
        env=laptop.env,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = json.loads(done.stdout.splitlines()[-1])[1]
    ours = {name for name in modules if name.startswith("orchestrator")}
    assert not {
        name for name in ours if name.startswith(("orchestrator.app", "orchestrator.adapters", "orchestrator.engine"))
    }
    assert not {"rich", "msgspec", "sqlite3"} & set(modules)


def test_every_task_has_help_with_an_example() -> None:
    """`kedge --help TASK` shows how the task is used."""
    from orchestrator.cli.program import namespace

    for name, task in namespace.tasks.items():
        assert "Examples:\n" in str(task.__doc__), name
        assert f"kedge {name}" in str(task.__doc__), name


def test_the_readme_names_every_task() -> None:
    """A task that nobody can find is no task."""
    from orchestrator.cli.program import namespace

    readme = (Path(__file__).parents[2] / "README.md").read_text()
    missing = [name for name in namespace.task_names if name not in readme]
    assert missing == []
