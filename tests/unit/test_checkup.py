"""A checkup looks at everything it can, and each line on which something isn't right ends with its fix."""

from __future__ import annotations

import pytest

from orchestrator.core.checkup import Probe, Verdict, run_probes
from orchestrator.core.errors import KedgeError

Look = tuple[Verdict, str, str]


def fine() -> Look:
    return Verdict.OK, "as it should be", "nothing to do"


def refused() -> Look:
    raise KedgeError("the networks can't be listed", why="the API answered 418: no words for it")


def test_a_line_that_is_not_right_has_a_fix_even_where_an_error_has_none() -> None:
    """A provider may refuse in words that kedge doesn't know."""
    right, wrong = run_probes((Probe(name="clock", look=fine), Probe(name="network", look=refused)))
    assert (right.verdict, right.fix) == (Verdict.OK, "")
    assert wrong.verdict is Verdict.FAILED
    assert "418" in wrong.found
    assert wrong.fix


@pytest.mark.parametrize("vital", [True, False])
def test_what_comes_after_a_vital_line_waits_for_it(vital: bool) -> None:
    """Ten times the same error would hide the cause; after another line all is looked at."""
    _, after = run_probes((Probe(name="credentials", look=refused, vital=vital), Probe(name="bucket", look=fine)))
    assert (after.verdict is Verdict.WARNING, "credentials" in after.fix) == (vital, vital)
