"""A machine whose agent doesn't start is ended."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from orchestrator.core.protocol.readiness import parse_ready
from tests.adapters.first_boot.scratch import (
    Scratch,
    needs_root,
    run_unready_check,
)


@needs_root
def test_a_machine_whose_agent_does_not_run_is_ended_and_says_so(scratch: Scratch) -> None:
    """The sentinel and boot.jsonl say so, whichever phase has failed before."""
    earlier = {"phase": "agent", "began": 1.0, "ended": 2.0, "ok": False, "error": "S3Error: 404"}
    (scratch.root / "boot.jsonl").write_text(json.dumps(earlier) + "\n")
    run_unready_check(scratch)
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert not ready.ok
    assert [phase.phase for phase in ready.phases] == ["agent", "watch"]
    assert ready.phases[-1].error.strip() == "the agent doesn't run 600 s after the boot: the machine ends itself"
    assert scratch.phases()[-1]["phase"] == "watch"
    assert scratch.systemctl_calls == ["--no-block start kedge-end.service"]


@pytest.mark.parametrize("answers", [(0,), (3, 3, 0)])
def test_a_machine_whose_agent_runs_is_left_to_it(scratch: Scratch, answers: tuple[int, ...]) -> None:
    """Also if the watch was just restarting at the first check."""
    assert run_unready_check(scratch, *answers).returncode == 0
    assert scratch.systemctl_calls == []
    assert not (scratch.root / "boot.jsonl").exists()
    assert not (scratch.root / "ready").exists()


def test_a_machine_whose_disk_is_full_is_ended_all_the_same(scratch: Scratch) -> None:
    """It just can't report why."""
    shutil.rmtree(scratch.root)
    scratch.root.write_text("a file in the folder's place: nothing can be written there")
    run_unready_check(scratch)
    assert scratch.systemctl_calls == ["--no-block start kedge-end.service"]


def test_a_machine_with_a_pipe_in_the_sentinels_place_is_ended_all_the_same(scratch: Scratch) -> None:
    """The job has put it there. Nobody reads from it, so a writer waits, for 20 s at most if the job puts it back."""
    os.mkfifo(scratch.root / ".ready")
    run_unready_check(scratch)
    assert scratch.systemctl_calls == ["--no-block start kedge-end.service"]
