"""What the API's refusals say, in all shapes that they come in."""

from __future__ import annotations

import pytest

from orchestrator.adapters.providers.digitalocean.failures import refusal_of


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"id": "not_found", "message": "no such thing"}, "no such thing"),
        ({"error": "bad", "messages": ["a tag has no dots"], "root_causes": []}, "bad; a tag has no dots"),
        (None, "400"),
        ("<html>", "400"),
    ],
)
def test_a_refusal_says_what_the_api_said(body: object, words: str) -> None:
    """One line, whatever the answer looks like; at least the status is known."""
    refused = refusal_of(400, body, "x can't be made")
    assert words in refused.why
    assert "\n" not in refused.why
    assert refused.status == 400
