"""Networks that may reach machines are parsed in one place, before anything is contacted."""

from __future__ import annotations

import pytest

from orchestrator.adapters.host.own_address import parse_own_address
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.network import open_families, parse_address_range


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
    """An address is a range of one; an empty text stays empty."""
    assert parse_address_range(text) == cidr


@pytest.mark.parametrize(
    "text", ["0.0.0.0/0", "::/0", "0.0.0.0/1", "8000::/1", "16.0.0.0/7", "198.51.100.7/24", "everybody"]
)
def test_the_whole_internet_and_malformed_ranges_are_refused(text: str) -> None:
    """Machines are closed by default, and no typo opens them."""
    with pytest.raises(BadRequestError, match=r"admits everybody|is not a range"):
        parse_address_range(text)


@pytest.mark.parametrize("text", ["0.0.0.0/0", "::/0"])
def test_the_whole_internet_can_be_allowed_for_a_users_own_security_group(text: str) -> None:
    """Only the launch knows whether there is one: it refuses the range where kedge makes the group."""
    assert parse_address_range(text, everybody=True) == text


def test_half_of_the_internet_is_refused_even_where_the_whole_is_allowed() -> None:
    """Nobody means that."""
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
def test_ranges_are_added_up_for_each_version_of_ip(networks: tuple[str, ...], families: tuple[int, ...]) -> None:
    """Private ranges don't count: nobody comes from there over the internet."""
    assert open_families(networks) == families


def test_the_laptops_own_address_is_a_single_address() -> None:
    """A proxy's error page or its whole range would open machines to nobody, or to others."""
    assert parse_own_address("198.51.100.7\n") == "198.51.100.7/32"
    for answer in ("", "\n", "198.51.100.0/24", "<html>"):
        with pytest.raises(BadRequestError, match=r"is not one address|is not a range"):
            parse_own_address(answer)


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        (
            "0.0.0.0/1",
            "'0.0.0.0/1' admits everybody, or nearly everybody",
            "machines are closed by default; the widest range is a /8, with IPv6 a /16",
        ),
        ("here", "'here' is not a range of addresses", "'here' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_a_refused_range_says_why_and_gives_an_example(text: str, what: str, why: str) -> None:
    """The fix is an example."""
    with pytest.raises(BadRequestError) as caught:
        parse_address_range(text)
    assert (caught.value.what, caught.value.why) == (what, why)
    assert "/" in caught.value.fix


def test_bits_below_the_mask_of_a_range_are_ignored() -> None:
    """Clouds list rules as somebody typed them."""
    assert open_families(("8.8.8.8/1",)) == (4,)
