"""The box's own tests are left out where they have passed as they are, and nowhere else."""

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
"""What a server imports that forks pytest."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a box, two tests of its own, and one of something else."""
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


def test_they_are_left_out_until_the_box_changes(project: Path) -> None:
    """A clean checkout runs them; then a change of the box does, or a variable."""
    many = ("-n", "2")
    assert _run(project, *many) == "3 passed"
    assert "1 passed" in _run(project, *many)
    assert _run(project, KEDGE_TESTS_ALL="1") == "3 passed"
    (project / "tests/unit/test_other.py").write_text("def test_another():\n    pass\n")
    assert _run(project) == "1 passed, 2 deselected"
    (project / "tests/cloudbox/box.py").write_text("COLOUR = 'blue'\n")
    assert _run(project, *many) == "3 passed"


def test_tests_that_are_named_run(project: Path) -> None:
    """Who names them wants to see them."""
    _run(project)
    assert _run(project, OWN) == "2 passed"


def test_only_a_run_in_which_all_passed_counts(project: Path) -> None:
    """A failure, or a part of them, is no reason to leave any out."""
    assert _run(project, BROKEN="1") == "1 failed, 2 passed"
    assert _run(project, "-k", "not two") == "2 passed, 1 deselected"
    assert _run(project, OWN) == "2 passed"
    assert _run(project, "--deselect", f"{OWN}::test_two") == "2 passed, 1 deselected"
    assert _run(project) == "3 passed"
