"""The message of a refusal, in every format in which the API sends it."""

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
def test_a_refusal_has_the_message_of_the_api(body: object, words: str) -> None:
    """It has one line, whatever the format. At least the status is known."""
    refused = refusal_of(400, body, "x can't be made")
    assert words in refused.why
    assert "\n" not in refused.why
    assert refused.status == 400
