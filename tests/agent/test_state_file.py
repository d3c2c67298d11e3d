"""state.json is parsed once for each of its versions, and none is taken for an earlier one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from orchestrator.agent.base import state
from orchestrator.agent.base.layout import Layout, TaskLayout
from orchestrator.agent.base.record import to_json
from orchestrator.agent.base.state import State
from orchestrator.agent.base.wire import FAILED, SUCCEEDED, Command


def write_in_place(task: TaskLayout, command: str, at: float) -> None:
    """Write a state of the same size and time into the same file: what a reused inode would look like."""
    text = to_json(State(command=Command(state=command), release="x" * (9 - len(command))))
    task.state_file.write_text(json.dumps(text))
    os.utime(task.state_file, (at, at))


def test_a_state_that_was_written_just_now_is_read_again(tmp_path: Path) -> None:
    """The next one may differ from it in nothing that the file's time, size and inode show."""
    task = Layout(tmp_path).task("")
    task.state_file.parent.mkdir(parents=True, exist_ok=True)
    now = time.time()
    for command in (FAILED, SUCCEEDED):
        write_in_place(task, command, now)
        assert state.load(task).command.state == command


def test_a_state_that_replaces_an_old_one_is_read(tmp_path: Path) -> None:
    """The old one has been read, and its time is the same."""
    task = Layout(tmp_path).task("")
    assert state.load(task) == State()
    task.state_file.parent.mkdir(parents=True, exist_ok=True)
    past = time.time() - 60
    for command in (FAILED, SUCCEEDED):
        state.save(task, State(command=Command(state=command), release="x" * (9 - len(command))))
        os.utime(task.state_file, (past, past))
        assert state.load(task).command.state == command
    task.state_file.unlink()
    assert state.load(task) == State()
