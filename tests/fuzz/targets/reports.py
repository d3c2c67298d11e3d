"""A machine's answers: reports, log events, commands, readiness, host keys, lists, errors.

Promises: an answer is accepted or refused as nonsense; an accepted one can be printed in every form, and is the same
when written again.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.cli.drawing import render
from orchestrator.cli.drawing.status_line import status_line_of
from orchestrator.cli.terminal.streams import CleanStream
from orchestrator.core.errors import NonsenseError, agent_error
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.readiness import parse_host_key, parse_ready
from orchestrator.core.protocol.report import MachineReport, parse_command, parse_report
from orchestrator.core.protocol.results import parse_results
from orchestrator.core.protocol.stream import parse_follow_event
from orchestrator.core.task import Task
from orchestrator.core.values.printable import find_unprintable
from orchestrator.engine.observing.recorded import RunStatus
from tests.fuzz.target import Target
from tests.support.fakes import MACHINE, NOW, RUN

_PARSERS = (parse_report, parse_command, parse_follow_event, parse_results, parse_ready)
_RECORD = RunRecord(
    spec=LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))),
    stage=RunStage.LIVE,
    created_at=NOW,
    outcome="",
    ended_at=None,
)
_LONGEST = 2000


def _run(data: bytes, _folder: Path) -> None:
    for parse in _PARSERS:
        with suppress(NonsenseError):
            _require_stable(parse, data)
    with suppress(NonsenseError):
        key = parse_host_key(data)
        assert "\n" not in key
        assert not find_unprintable(key)
    with suppress(NonsenseError):
        _show(parse_report(data))
    said = str(agent_error("the machine could not report", 1, data))
    assert len(said) < _LONGEST
    assert len(said.splitlines()) <= 3


def _require_stable(parse: Any, data: bytes) -> None:
    taken = parse(data)
    written = msgspec.json.encode(taken)
    assert msgspec.json.encode(parse(written)) == written


def _show(report: MachineReport) -> None:
    for task in report.each_task.values():
        stalled_for(task, report.now, timedelta(minutes=1))
    assert not find_unprintable(status_line_of(report, Decimal(10)))
    status = RunStatus(record=_RECORD, now=NOW, machines=(MACHINE,), spent_usd=Decimal(1), report=report)
    for shown in (status, replace(status, machines=())):
        assert _printed(shown, as_json=False)
        json.loads(_printed(shown, as_json=True))


def _printed(status: RunStatus, *, as_json: bool) -> str:
    terminal = io.StringIO()
    with redirect_stdout(CleanStream(terminal)):
        render.statuses((status,), (), as_json=as_json, detailed=True)
    assert not find_unprintable(terminal.getvalue(), lines=True)
    return terminal.getvalue()


TARGET = Target(
    name="reports",
    run=_run,
    allowed=(NonsenseError,),
    tokens=(
        b'"progress":',
        b'"metrics":',
        b'"command":',
        b'"state":"running"',
        b'"report":',
        b"1e999",
        b"\\ud800",
        b"ssh-ed25519 ",
    ),
    examples=1000,
)
