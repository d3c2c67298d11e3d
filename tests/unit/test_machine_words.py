"""How malformed answers of a machine are reported, and the limits of valid ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from orchestrator.core.errors import NonsenseError
from orchestrator.core.protocol.decoding import clip, require_bounded, split_lines
from orchestrator.core.protocol.readiness import BootPhase, Readiness, parse_host_key, parse_ready
from orchestrator.core.protocol.report import Command, FreshStart, MachineReport, RunState, parse_command, parse_report
from orchestrator.core.protocol.results import LeftBehind, LeftFile, ResultFile, parse_left_behind, parse_results
from orchestrator.core.protocol.stream import FollowEvent, parse_follow_event


def nested(depth: int) -> object:
    """Return lists in each other."""
    return [] if depth == 1 else [nested(depth - 1)]


FILE = {"path": "a", "bytes": 1, "sha256": "0"}
REPORT = {"machine": "m", "run": "r", "now": 1, "created": 1, "deadline": 1, "usd_per_hour": "2"}


@pytest.mark.parametrize(
    ("parse", "raw", "meant"),
    [
        (parse_ready, b'{"ok":true}', Readiness(ok=True)),
        (
            parse_ready,
            b'{"ok":false,"phases":[{"phase":"agent","began":1,"ended":2,"ok":false,"error":"no disk"}]}',
            Readiness(ok=False, phases=(BootPhase(phase="agent", began=1, ended=2, ok=False, error="no disk"),)),
        ),
        (parse_command, b'{"state":"running"}', Command(state=RunState.RUNNING)),
        (parse_follow_event, b'{"offset":3,"line":"ab"}', FollowEvent(offset=3, line="ab")),
        (parse_results, json.dumps([FILE]).encode(), (ResultFile(path="a", bytes=1, sha256="0"),)),
        (
            parse_left_behind,
            b'{"files":1,"bytes":2,"named":[{"path":"a","bytes":2}],"is_whole":false}',
            LeftBehind(files=1, bytes=2, named=(LeftFile(path="a", bytes=2),), is_whole=False),
        ),
    ],
)
def test_each_answer_is_parsed_into_a_type_of_its_own(
    parse: Callable[[bytes], object], raw: bytes, meant: object
) -> None:
    """Not just any JSON is accepted."""
    assert parse(raw) == meant


@pytest.mark.parametrize(
    ("parse", "what"),
    [
        (parse_ready, "its readiness sentinel"),
        (parse_report, "its report"),
        (parse_command, "its command's state"),
        (parse_follow_event, "its log's stream"),
        (parse_results, "its list of results"),
        (parse_left_behind, "its list of what was left behind"),
    ],
)
def test_an_answer_that_is_no_json_is_named_and_quoted(parse: Callable[[bytes], object], what: str) -> None:
    """The error shows its beginning, and how to get rid of the machine."""
    with pytest.raises(NonsenseError) as caught:
        parse(b"<" * 81)
    assert str(caught.value) == (
        f"the machine sent an invalid answer: {what} can't be read\n"
        f"  why: JSON is malformed: invalid character (byte 0); it begins {b'<' * 80!r}\n"
        "  fix: look at the machine with `kedge ssh`, or end it with `kedge teardown --no-fetch`"
    )


@pytest.mark.parametrize(
    ("parse", "raw", "what", "why"),
    [
        (parse_host_key, b"<" * 81, "its host key", f"it begins {b'<' * 80!r}"),
        (parse_results, json.dumps([FILE, FILE]).encode(), "its list of results", "it names a file twice"),
        (
            parse_results,
            json.dumps([{**FILE, "path": "../a"}]).encode(),
            "its list of results",
            "'../a' leads out of the results",
        ),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused_with_the_contradiction(
    parse: Callable[[bytes], object], raw: bytes, what: str, why: str
) -> None:
    """It could be parsed, but can't be true."""
    with pytest.raises(NonsenseError) as caught:
        parse(raw)
    assert caught.value.what == f"the machine sent an invalid answer: {what} can't be read"
    assert caught.value.why == why


@pytest.mark.parametrize("price", ["0", "0.01", "0.5", "1000000"])
def test_a_price_may_be_zero_or_a_million_dollars(price: str) -> None:
    """Both limits are valid."""
    assert parse_report(json.dumps({**REPORT, "usd_per_hour": price}).encode()).usd_per_hour == price


@pytest.mark.parametrize("price", ["-0.01", "1000000.01", "free", "NaN"])
def test_an_invalid_price_makes_a_report_nonsense(price: str) -> None:
    """Costs would be computed with it."""
    with pytest.raises(NonsenseError, match="its price is not an amount of money"):
        parse_report(json.dumps({**REPORT, "usd_per_hour": price}).encode())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (nested(17), "^nested more than 16 deep$"),
        ({"a": [(1 << 63) + 1]}, "^a whole number of more than 64 bits$"),
        ([float("inf")], "^a number that is infinite or NaN$"),
        ({"a": float("nan")}, "^a number that is infinite or NaN$"),
    ],
)
def test_values_too_deep_to_walk_or_too_large_to_compute_with_are_refused(content: object, why: str) -> None:
    """A user's own status.json may hold anything."""
    with pytest.raises(ValueError, match=why):
        require_bounded(content)


def test_values_at_the_limits_are_accepted() -> None:
    """The largest number, and the deepest nesting."""
    require_bounded([-(1 << 63), 1 << 63, 1.5, "a", None, nested(15)])


def test_a_log_is_split_at_newlines_only() -> None:
    """A carriage return stays; a last line without a newline counts, an empty one doesn't."""
    assert split_lines(b"a\rb\n\nc") == [b"a\rb", b"", b"c"]
    assert split_lines(b"a\nb\n") == [b"a", b"b"]
    assert split_lines(b"") == []


def test_long_text_is_shortened_to_fit_an_error() -> None:
    """What just fits stays whole."""
    assert clip("x" * 300) == "x" * 300
    assert clip("x" * 301) == f"{'x' * 300}..."
    assert clip("abc", 2) == "ab..."


@pytest.mark.parametrize(
    ("step", "had_step", "text"),
    [
        (5, 9, "its first checkpoint, a, is of step 5; there was one of step 9"),
        (9, 9, "its first checkpoint, a, has 1,000 bytes; the last one had 2,000"),
        (None, 9, "its first checkpoint, a, has 1,000 bytes; the last one had 2,000"),
        (5, None, "its first checkpoint, a, has 1,000 bytes; the last one had 2,000"),
    ],
)
def test_a_run_that_began_again_says_how_that_was_noticed(step: int | None, had_step: int | None, text: str) -> None:
    """By its steps where both are known, else by sizes."""
    anew = FreshStart(name="a", had="b", step=step, had_step=had_step, bytes=1000, had_bytes=2000)
    assert str(anew) == text


def test_a_report_without_details_has_none() -> None:
    """Agents of any age send the same six fields."""
    report = parse_report(json.dumps(REPORT).encode())
    assert isinstance(report, MachineReport)
    assert (report.command, report.notice, report.anew, report.deadline_at) == (Command(), 0, None, 1)
