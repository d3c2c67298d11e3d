"""A credential that no request can carry never reaches the library that would name it."""

from __future__ import annotations

import pytest

from orchestrator.core.credentials import require_sendable
from orchestrator.core.errors import BadRequestError


@pytest.mark.parametrize("end", ["\n", "\r", "\0", " ", "\t", "\x1b[2J", "\u200b", "\u20ac"])
@pytest.mark.parametrize("form", ["{}secret", "sec{}ret", "secret{}"])
def test_what_no_request_can_carry_is_refused_by_its_name(form: str, end: str) -> None:
    """And its value is not in the error."""
    with pytest.raises(BadRequestError) as caught:
        require_sendable(form.format(end), "THE_TOKEN")
    assert "THE_TOKEN can't be sent" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "dop_v1_0aF", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY==", "a.b-c:d~e"])
def test_what_clouds_issue_is_taken(value: str) -> None:
    """As it is."""
    assert require_sendable(value, "THE_TOKEN") == value
