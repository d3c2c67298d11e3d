"""A checkup looks at everything it can; each line that isn't ok ends with its fix."""

from __future__ import annotations

import pytest

from orchestrator.core.checkup import Probe, ProbeResult, Verdict, run_probes
from orchestrator.core.errors import KedgeError


def fine() -> ProbeResult:
    return Verdict.OK, "as it should be", "nothing to do"


def refused() -> ProbeResult:
    raise KedgeError("the networks can't be listed", why="the API answered 418: no words for it")


def test_every_line_that_is_not_ok_has_a_fix() -> None:
    """Also where the error has none: a provider may refuse in words that kedge doesn't know."""
    right, wrong = run_probes((Probe(name="clock", look=fine), Probe(name="network", look=refused)))
    assert (right.verdict, right.fix) == (Verdict.OK, "")
    assert wrong.verdict is Verdict.FAILED
    assert "418" in wrong.found
    assert wrong.fix


@pytest.mark.parametrize("vital", [True, False])
def test_lines_after_a_vital_one_that_failed_are_skipped(vital: bool) -> None:
    """The same error ten times would hide the cause. After any other failure the checkup goes on."""
    _, after = run_probes((Probe(name="credentials", look=refused, vital=vital), Probe(name="bucket", look=fine)))
    assert (after.verdict is Verdict.WARNING, "credentials" in after.fix) == (vital, vital)


def silent() -> ProbeResult:
    raise KedgeError("it is off")


def test_a_failed_line_says_what_and_why() -> None:
    """Without a reason, what happened stands alone."""
    checks = run_probes((Probe(name="network", look=refused), Probe(name="clock", look=silent)))
    assert [(check.name, check.found) for check in checks] == [
        ("network", "the networks can't be listed: the API answered 418: no words for it"),
        ("clock", "it is off"),
    ]


def test_skipped_lines_name_the_vital_one_that_failed() -> None:
    """None of them is left out."""
    first = Probe(name="credentials", look=refused, vital=True)
    _, *after = run_probes((first, Probe(name="bucket", look=fine), Probe(name="clock", look=fine)))
    assert [(check.name, check.verdict, check.found, check.fix) for check in after] == [
        ("bucket", Verdict.WARNING, "not looked at", "fix 'credentials' first"),
        ("clock", Verdict.WARNING, "not looked at", "fix 'credentials' first"),
    ]
