"""The decoder of machines' answers accepts what can be computed with and printed, and refuses all else."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.drawing import render
from orchestrator.cli.drawing.status_line import status_line_of
from orchestrator.core.errors import NonsenseError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.decoding import DEPTH, LATEST
from orchestrator.core.protocol.readiness import parse_host_key, parse_ready
from orchestrator.core.protocol.report import parse_command, parse_report
from orchestrator.core.protocol.results import parse_results
from orchestrator.core.protocol.stream import parse_follow_event
from orchestrator.core.task import Task
from orchestrator.engine.observing.recorded import RunStatus
from tests.support.fakes import MACHINE, NOW, RUN

REPORT: dict[str, Any] = {
    "machine": MACHINE.id,
    "run": RUN,
    "now": 2000.0,
    "created": 1000.0,
    "deadline": 9000.0,
    "usd_per_hour": "1.99",
    "heartbeat": 1999.0,
    "log_bytes": 10,
    "disk_free_bytes": 1,
    "disk_total_bytes": 2,
    "command": {"state": "running", "attempt": 1, "exit_code": None, "since": 1100.0, "started": 1100.0},
    "progress": {"step": 3, "metrics": {"loss": 0.5}},
    "sample": {"time": 1.0, "cpu_percent": 1.0, "memory_used_mib": 1.0, "memory_total_mib": 2.0, "gpus": []},
    "checkpoint": {"name": "c", "bytes": 1, "written": 1500.0},
    "shipped": {"time": 1.0, "checkpoint": "c", "error": ""},
    "advanced": 1900.0,
    "anew": {"name": "c", "had": "c", "step": 50, "had_step": 650, "bytes": 1, "had_bytes": 1, "kept": "c"},
}
RECORD = RunRecord(
    spec=LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))),
    stage=RunStage.LIVE,
    created_at=NOW,
    outcome="",
    ended_at=None,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def put(path: str, text: str) -> bytes:
    """Put text at a place of the report where json.dumps wouldn't write it."""
    *parents, name = path.split(".")
    report = json.loads(json.dumps(REPORT))
    at = report
    for parent in parents:
        at = at[parent]
    at[name] = "@@"
    return json.dumps(report).replace('"@@"', text).encode(errors="surrogateescape")


LIES = {
    "5,000 nested lists": put("progress.a", nested(5000)),
    "700 nested lists": put("progress.a", nested(700)),
    "one nested list too many": put("progress.a", nested(DEPTH)),
    "nesting in a field that nobody knows": put("unheard_of", nested(5000)),
    "a whole number of 5,000 digits": put("progress.step", "9" * 5000),
    "a whole number of 400 digits": put("progress.metrics.loss", "9" * 400),
    "a metric that is infinite": put("progress.metrics.loss", "1e999"),
    "a checkpoint from before the universe": put("checkpoint.written", "-1e300"),
    "a checkpoint of fewer than no bytes": put("checkpoint.bytes", "-1"),
    "a checkpoint of all bytes": put("checkpoint.bytes", "9" * 30),
    "a command since the end of time": put("command.since", "1e300"),
    "an exit code of 30 digits": put("command.exit_code", "9" * 30),
    "attempt minus one": put("command.attempt", "-1"),
    "a clock at the end of time": put("now", "1e308"),
    "a clock just too late": put("now", str(LATEST * 1.1)),
    "a clock at infinity": put("now", "1e999"),
    "a clock that is no number": put("now", "NaN"),
    "a heartbeat before the epoch": put("heartbeat", "-1"),
    "a price without an end": put("usd_per_hour", '"1E+999999"'),
    "a price of a galaxy": put("usd_per_hour", '"10000000"'),
    "a price that is no number": put("usd_per_hour", '"NaN"'),
    "a price below nothing": put("usd_per_hour", '"-1"'),
    "a disk that is no whole number": put("disk_free_bytes", "1e308"),
    "a load at infinity": put("sample.cpu_percent", "1e999"),
    "bytes that are no text": put("code", '"\udcff"'),
    "an endless name": put("checkpoint.name", f'"{"n" * 5000}"'),
    "nothing": b"",
    "zeros": b"\0" * 100,
    "a list": b"[]",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_can_not_be_meant_is_no_report(lie: bytes) -> None:
    """One kind of error, whose lines are short, whatever made the decoder fail."""
    with pytest.raises(NonsenseError) as caught:
        parse_report(lie)
    assert len(str(caught.value)) < 1000
    parse_report(json.dumps(REPORT).encode())


@given(raw=st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
@settings(max_examples=50)
def test_any_answer_is_what_was_asked_for_or_nonsense(raw: bytes | str) -> None:
    """No other exception comes out of any parser."""
    answer = raw if isinstance(raw, bytes) else raw.encode(errors="surrogatepass")
    for parse in (parse_report, parse_command, parse_follow_event, parse_results, parse_ready, parse_host_key):
        with suppress(NonsenseError):
            parse(answer)


ANY_NUMBER = st.one_of(st.floats(), st.integers(), st.sampled_from([0, -1, LATEST, 1e300, -1e300, 1 << 60, 1 << 64]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), ANY_NUMBER, st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
PLACES = [
    *(f"command.{name}" for name in ("attempt", "exit_code", "since", "started", "reason")),
    *("checkpoint.written", "checkpoint.bytes", "sample.cpu_percent", "shipped.time", "usd_per_hour", "progress"),
    *("progress.step", "progress.steps", "progress.metrics", "progress.metrics.loss"),
    *("now", "created", "deadline", "heartbeat", "advanced", "log_bytes", "disk_free_bytes", "disk_total_bytes"),
]


@settings(max_examples=100)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING | ANY_NUMBER), max_size=4))
def test_a_report_that_is_accepted_can_be_printed(changes: list[tuple[str, Any]]) -> None:
    """Whatever its fields hold: the line that says how a run stands, the table, the details and the document."""
    report = json.loads(json.dumps(REPORT))
    for path, content in changes:
        *parents, name = path.split(".")
        at = report
        for parent in parents:
            at = at[parent] if isinstance(at.get(parent), dict) else {}
        at[name] = content
    try:
        seen = parse_report(json.dumps(report).encode(errors="surrogatepass"))
    except NonsenseError:
        return
    for task in seen.each_task.values():
        stalled_for(task, seen.now, timedelta(minutes=1))
    assert status_line_of(seen, Decimal(10))
    status = RunStatus(record=RECORD, now=NOW, machines=(MACHINE,), spent_usd=Decimal(1), report=seen)
    for as_json in (False, True):
        render.statuses((status,), (), as_json=as_json, detailed=True)
        render.statuses((replace(status, machines=()),), (), as_json=as_json, detailed=True)


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "x", "bytes": -1, "sha256": "0"}],
        [{"path": "../x", "bytes": 1, "sha256": "0"}],
        [{"path": "a/../../x", "bytes": 1, "sha256": "0"}],
        [{"path": "/etc/passwd", "bytes": 1, "sha256": "0"}],
        [{"path": "a\0b", "bytes": 1, "sha256": "0"}],
        [{"path": "", "bytes": 1, "sha256": "0"}],
        [{"path": "x", "bytes": 1, "sha256": "0"}] * 2,
    ],
)
def test_a_list_of_results_names_each_file_below_them_once(files: list[dict[str, object]]) -> None:
    """The laptop hashes the files it names: none outside of the copy, and none a thousand times."""
    with pytest.raises(NonsenseError):
        parse_results(json.dumps(files).encode())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"ssh-ed25519",
        b"ssh-ed25519 AAAA\n* ssh-rsa BBBB",
        b"@cert-authority * ssh-rsa AAAA",
        b"ssh-rsa \xff",
        b"a" * 9000,
    ],
)
def test_a_host_key_is_one_line_of_a_file_of_keys(said: bytes) -> None:
    """It is written into such a file: a second line would be another host's key."""
    with pytest.raises(NonsenseError):
        parse_host_key(said)
    assert parse_host_key(b"ssh-ed25519 AAAA+/== kedge@m 1\n") == "ssh-ed25519 AAAA+/== kedge@m 1"


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "fit; rm -rf ~", "fit\n", "Fit", "a" * 32, "../fit"])
def test_a_task_has_a_name_that_a_job_file_may_have(name: str) -> None:
    """It becomes a label on the terminal, and a part of commands that findings suggest."""
    line = json.dumps({"offset": 1, "line": "x", "task": name}).encode()
    with pytest.raises(NonsenseError):
        parse_follow_event(line)
    with pytest.raises(NonsenseError):
        parse_report(json.dumps({**REPORT, "tasks": {name: {"command": REPORT["command"]}}}).encode())


def test_usual_names_of_tasks_are_accepted() -> None:
    """A task without a name is the only one."""
    for name in ("", "fit", "stage-2", "a" * 31):
        assert parse_follow_event(json.dumps({"offset": 1, "line": "x", "task": name}).encode()).task == name
        assert name in parse_report(json.dumps({**REPORT, "tasks": {name: {}}}).encode()).tasks
