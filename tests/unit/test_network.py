"""Who may reach machines is read in one place, before anything is contacted."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.network import is_everybody, parse_address_range


@pytest.mark.parametrize(
    ("text", "cidr"),
    [
        ("", ""),
        ("198.51.100.7", "198.51.100.7/32"),
        (" 198.51.100.0/24 ", "198.51.100.0/24"),
        ("2001:db8::/64", "2001:db8::/64"),
    ],
)
def test_an_address_or_a_range_is_read_as_cidr(text: str, cidr: str) -> None:
    """One address is a range of one; nothing stays nothing."""
    assert parse_address_range(text) == cidr


@pytest.mark.parametrize("text", ["0.0.0.0/0", "::/0", "198.51.100.7/24", "everybody"])
def test_everybody_and_what_is_no_range_are_refused(text: str) -> None:
    """Machines are closed by default, and no typo opens them."""
    with pytest.raises(BadRequestError, match=r"is everybody|is no range"):
        parse_address_range(text)


@pytest.mark.parametrize("text", ["0.0.0.0/0", "::/0"])
def test_everybody_may_be_said_where_a_security_group_of_the_user_s_own_can_mean_it(text: str) -> None:
    """Whether it may be said is known only with the job: the launch refuses it where kedge makes the group."""
    assert is_everybody(parse_address_range(text, everybody=True))
