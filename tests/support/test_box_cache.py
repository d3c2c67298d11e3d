"""The box's own tests are skipped only if they have passed on the same files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.preloaded.process import run

ROOT = Path(__file__).parents[2]
OWN = "tests/cloudbox/own/test_box.py"
PYTEST = (
    "pytest",
    "_pytest.config",
    "_pytest.python",
    "_pytest.cacheprovider",
    "_pytest.debugging",
    "_pytest.terminal",
)
"""The modules that a server imports to fork pytest."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a box, the box's two tests, and one other test."""
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\ntestpaths = ['tests']\n",
        "tests/cloudbox/box.py": "COLOUR = 'red'\n",
        OWN: "import os\ndef test_one():\n    assert 'BROKEN' not in os.environ\ndef test_two():\n    pass\n",
        "tests/unit/test_other.py": "def test_other():\n    pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _run(project: Path, *words: str, **environ: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KEDGE_TESTS"))}
    done = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.support.box_cache", *words],
        preload=PYTEST,
        cwd=project,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ},
        timeout=120,
    )
    return done.stdout.splitlines()[-1].partition(" in ")[0]


def test_the_boxs_tests_are_skipped_until_the_box_changes(project: Path) -> None:
    """A clean checkout runs them. A changed box or a variable makes them run again."""
    many = ("-n", "2")
    assert _run(project, *many) == "3 passed"
    assert "1 passed" in _run(project, *many)
    assert _run(project, KEDGE_TESTS_ALL="1") == "3 passed"
    (project / "tests/unit/test_other.py").write_text("def test_another():\n    pass\n")
    assert _run(project) == "1 passed, 2 deselected"
    (project / "tests/cloudbox/box.py").write_text("COLOUR = 'blue'\n")
    assert _run(project, *many) == "3 passed"


def test_tests_that_are_named_on_the_command_line_run(project: Path) -> None:
    """Whoever names them wants to run them."""
    _run(project)
    assert _run(project, OWN) == "2 passed"


def test_only_a_complete_run_without_failures_counts(project: Path) -> None:
    """After a failure, or a run of only some of them, none is skipped."""
    assert _run(project, BROKEN="1") == "1 failed, 2 passed"
    assert _run(project, "-k", "not two") == "2 passed, 1 deselected"
    assert _run(project, OWN) == "2 passed"
    assert _run(project, "--deselect", f"{OWN}::test_two") == "2 passed, 1 deselected"
    assert _run(project) == "3 passed"
