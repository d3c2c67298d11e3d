"""A creation that is killed at any step: whatever is left is found and destroyed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.local.box import Box

ID = "run-1a2b-m1"


@pytest.mark.parametrize("first", [0, 1])
def test_a_creation_killed_at_any_step_is_found_and_destroyed(box: Box, first: int) -> None:
    """Before every file, folder and process: what is left is listed, can be created again, and can be destroyed.

    Odd steps create the machine again before they destroy it, as `resume` does.
    """
    rows = run_kills(box, first=first, stride=2)
    assert len(rows) > 8
    assert [row["killed"] for row in rows] == [True] * (len(rows) - 1) + [False]
    unseen = [row["step"] for row in rows if bool(row["left"]) != (row["seen"] == [ID])]
    assert unseen == []
    assert [row["step"] for row in rows if row["after"]] == []
    assert {row["again"] for row in rows} <= {"", "ready"}


def run_kills(box: Box, *, first: int, stride: int) -> list[dict[str, Any]]:
    argv = [sys.executable, "-m", "tests.adapters.local.crashing_creation", str(box.base), str(first), str(stride)]
    checkout = Path(__file__).parents[3]
    done = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
