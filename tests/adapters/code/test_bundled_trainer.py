"""The bundled trainer reaches a machine with the user's code, under a name that the code doesn't have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.adapters.jobfile.assembly.bundled import trainer_packages
from tests.adapters.code.conftest import Box


def test_the_bundled_trainer_travels_beside_one_of_the_user_s_own(box: Box, work: Path) -> None:
    """`-m trainer` stays theirs, `-m kedge_trainer` is ours, and can use what their folder has."""
    (work / "trainer").mkdir()
    (work / "trainer" / "__init__.py").touch()
    (work / "trainer" / "__main__.py").write_text("print('theirs')")
    (work / "mine.py").write_text('"""The user\'s recipe."""\nimport trainer\n\n\ndef recipe():\n    return trainer\n')
    (work / "where.py").write_text("import trainer\n\nraise ValueError(f'trainer is {trainer.__file__}')\n")
    box.sync(work, **trainer_packages(work))
    assert run(box, "trainer") == "theirs\n"
    assert "(built in)" in run(box, "kedge_trainer", "recipes")
    assert "did you mean python -m kedge_trainer digits?" in run(box, "kedge_trainer", "digit")
    refused = run(box, "kedge_trainer", "mine:recipe")
    assert "recipe() returned <class 'module'>" in refused
    assert f"trainer is {box.code.resolve()}/kedge_trainer/trainer/" in run(box, "kedge_trainer", "where:recipe")


def test_the_bundled_trainer_travels_alone(box: Box, work: Path) -> None:
    """Under both names if the code has none."""
    box.sync(work, **trainer_packages(work))
    assert not (box.code / "kedge_trainer" / "trainer").exists()
    assert "(built in)" in run(box, "kedge_trainer", "recipes") == run(box, "trainer", "recipes")


def run(box: Box, module: str, *argv: str) -> str:
    """Run a module in the machine's code, as a task does; return what it says."""
    env = {**os.environ, "PYTHONPATH": str(box.code)}
    command = [sys.executable, "-m", module, *argv]
    done = subprocess.run(command, cwd=box.code, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr
