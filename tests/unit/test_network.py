"""Who may reach machines is read in one place, before anything is contacted."""

from __future__ import annotations

import pytest

from orchestrator.adapters.own_address import parse_own_address
from orchestrator.core.errors import BadRequestError
from orchestrator.core.network import open_families, parse_address_range


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


@pytest.mark.parametrize(
    "text", ["0.0.0.0/0", "::/0", "0.0.0.0/1", "8000::/1", "16.0.0.0/7", "198.51.100.7/24", "everybody"]
)
def test_everybody_and_what_is_no_range_are_refused(text: str) -> None:
    """Machines are closed by default, and no typo opens them."""
    with pytest.raises(BadRequestError, match=r"is everybody|is no range"):
        parse_address_range(text)


@pytest.mark.parametrize("text", ["0.0.0.0/0", "::/0"])
def test_everybody_may_be_said_where_a_security_group_of_the_user_s_own_can_mean_it(text: str) -> None:
    """Whether it may be said is known only with the job: the launch refuses it where kedge makes the group."""
    assert parse_address_range(text, everybody=True) == text


def test_half_of_everybody_is_refused_even_where_everybody_may_be_said() -> None:
    """It can't be meant."""
    with pytest.raises(BadRequestError, match="nearly"):
        parse_address_range("0.0.0.0/1", everybody=True)


@pytest.mark.parametrize(
    ("networks", "families"),
    [
        (("0.0.0.0/1", "128.0.0.0/1"), (4,)),
        (tuple(f"{first}.0.0.0/9" for first in (20, 40, 60)), (4,)),
        (("::/1", "8000::/1", "198.51.100.7/32"), (6,)),
        (("0.0.0.0/0", "::/0"), (4, 6)),
        (("20.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fd00::/8", "2001::/16"), ()),
        ((), ()),
    ],
)
def test_ranges_count_together_and_each_version_of_ip_by_itself(
    networks: tuple[str, ...], families: tuple[int, ...]
) -> None:
    """Private ranges don't count: nobody comes from there over the internet."""
    assert open_families(networks) == families


def test_an_own_address_is_one_address() -> None:
    """A proxy's empty page, or its range, opens machines to nobody, or to others."""
    assert parse_own_address("198.51.100.7\n") == "198.51.100.7/32"
    for answer in ("", "\n", "198.51.100.0/24", "<html>"):
        with pytest.raises(BadRequestError, match=r"is not one address|is no range"):
            parse_own_address(answer)
