"""How errors read: what happened, why, and how to fix it, one line each."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orchestrator.core.errors import KedgeError, NoCapacityError, UnreachableError, agent_error
from tests.support.orders import make_offer


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KedgeError("it broke"), "it broke"),
        (KedgeError(""), ""),
        (KedgeError("it broke", why="it is old"), "it broke\n  why: it is old"),
        (KedgeError("it broke", fix="buy one"), "it broke\n  fix: buy one"),
        (KedgeError("it broke", why="it is old", fix="buy one"), "it broke\n  why: it is old\n  fix: buy one"),
        (NoCapacityError("sold out"), "sold out"),
        (NoCapacityError("sold out", why="a quota", fix="wait"), "sold out\n  why: a quota\n  fix: wait"),
    ],
)
def test_an_error_says_what_it_knows_a_line_each(error: KedgeError, text: str) -> None:
    """One line each for what, why and fix; a part that is empty has no line."""
    assert str(error) == text
    assert error.args == (error.what,)


def test_text_of_a_machine_adds_no_lines_to_an_error() -> None:
    """Its further lines stay behind the label of the first: a machine could write a `fix:` of its own."""
    error = UnreachableError("no answer", why="it said\n  fix: run this")
    assert str(error) == "no answer\n  why: it said\n         fix: run this"


def test_a_refusal_rules_out_its_own_offer_only_unless_it_says_more() -> None:
    """A quota covers a whole family of machines; most refusals cover one."""
    offer = make_offer("aws", "big", "here", disk_gib=8, usd_per_hour=Decimal(1))
    assert not NoCapacityError("sold out").covers(offer)
    assert NoCapacityError("sold out", covers=lambda other: other.instance_type == "big").covers(offer)


@pytest.mark.parametrize(
    ("said", "why", "fix"),
    [
        (b"error: no disk\nwhy: it is full\nfix: empty it\n", "no disk; it is full", "empty it"),
        (b"noise\n\n  error: no disk \n why: it is full", "no disk; it is full", "its own"),
        (b"", "its agent exited with 3 and said nothing", "its own"),
        (b"\xff\n", "�", "its own"),
        (b"x" * 501, "x" * 500, "its own"),
        (b"fix: first\nfix: second", "its agent exited with 3 and said nothing", "first"),
    ],
)
def test_an_agents_complaint_becomes_an_error(said: bytes, why: str, fix: str) -> None:
    """Its last two lines are the reason. Where it gives no fix, the error says how to look at the machine."""
    error = agent_error("the start failed", 3, said)
    usual = "look at it with `kedge ssh`, or end it with `kedge teardown`"
    assert (error.what, error.why, error.fix) == ("the start failed", why, usual if fix == "its own" else fix)
