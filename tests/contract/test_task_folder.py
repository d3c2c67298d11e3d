"""The agent's paths of a task, and the laptop's idea of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.base.config import task_key
from orchestrator.agent.base.layout import Layout
from orchestrator.core.protocol.task_folder import folder_of


@pytest.mark.parametrize(
    ("name", "sequence", "mode"), [("", 0, ""), ("a", 0, "x"), ("", 1, "x"), ("a", 2, ""), ("a", 1, "x")]
)
def test_both_sides_find_a_task_s_files_at_the_same_place(name: str, sequence: int, mode: str) -> None:
    """Of each task and mode."""
    layout = Layout(Path("/root"))
    task = layout.task(task_key({"sequence": sequence, "mode": mode}, name))
    folder = folder_of(name, sequence=sequence, mode=mode)
    assert folder.key == task.key
    assert [layout.results / path for path in (folder.log, folder.checkpoints, folder.kept)] == [
        task.log_file,
        task.checkpoints,
        task.kept,
    ]
    if folder.key:
        assert layout.root / folder.shell == task.shell_file
