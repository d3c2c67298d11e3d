"""A credential that HTTP can't carry is refused before a library sees it: its error would show the value."""

from __future__ import annotations

import pytest

from orchestrator.adapters.providers import PROVIDERS
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.credentials import is_own_credential, require_sendable


@pytest.mark.parametrize("end", ["\n", "\r", "\0", " ", "\t", "\x1b[2J", "\u200b", "\u20ac"])
@pytest.mark.parametrize("form", ["{}secret", "sec{}ret", "secret{}"])
def test_a_credential_that_cannot_be_sent_is_refused_by_its_name(form: str, end: str) -> None:
    """The error doesn't hold its value."""
    with pytest.raises(BadRequestError) as caught:
        require_sendable(form.format(end), "THE_TOKEN")
    assert "THE_TOKEN can't be sent" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "dop_v1_0aF", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY==", "a.b-c:d~e"])
def test_credentials_as_clouds_issue_them_are_accepted(value: str) -> None:
    """Unchanged."""
    assert require_sendable(value, "THE_TOKEN") == value


def test_the_refusal_says_what_no_credential_holds_and_how_to_mend_it() -> None:
    """The credential itself isn't shown."""
    with pytest.raises(BadRequestError) as caught:
        require_sendable("secret word", "$DIGITALOCEAN_TOKEN")
    assert str(caught.value) == (
        "$DIGITALOCEAN_TOKEN can't be sent\n"
        "  why: it holds a line end, a blank, or another character that no credential has\n"
        "  fix: set it again, without what was copied along with it"
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_signs_in_to_a_provider_is_known_as_a_credential(provider: str) -> None:
    """Else a job would be given it without --allow-secret: a new provider's prefix goes into credentials.py."""
    sign_in = PROVIDERS[provider].sign_in
    variables = sign_in.variables if sign_in else ()
    assert [name for name in variables if not is_own_credential(name)] == []
