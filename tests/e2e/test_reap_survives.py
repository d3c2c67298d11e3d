"""If kedge can't understand one provider's answers, a round of `kedge reap` still ends the others' machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.reaping import look_everywhere, reap_all
from orchestrator.app.root import App
from orchestrator.engine.world import World
from tests.e2e.test_reap import launch_and_die
from tests.support.laptop import Laptop


class PuzzledApp(App):
    """An App with an unforeseen error at one provider."""

    def world(self, provider: str) -> World:
        """Fail at Lambda, as with a tag in an unknown form."""
        if provider == "lambda":
            raise ValueError("Invalid isoformat string: '1790000000'")
        return super().world(provider)


@pytest.fixture
def app(laptop: Laptop) -> PuzzledApp:
    """The composition root of a laptop with a machine whose launch died."""
    launch_and_die(laptop)
    return PuzzledApp(replace(read_settings(laptop.env), cwd=laptop.home))


def test_a_provider_with_an_unexpected_error_counts_as_not_queried(app: PuzzledApp, laptop: Laptop) -> None:
    """It counts as something that may bill, and the error is shown; other providers are surveyed and reaped."""
    found = look_everywhere(app, (), everyone=False)
    (unseen,) = [each for each in found.unseen if each.provider == "lambda"]
    assert unseen.matters
    assert unseen.why == "unexpected ValueError: Invalid isoformat string: '1790000000'"
    assert any("lambda" in line for line in found.billing)
    assert reap_all(app, found.acts, print) == ()
    assert laptop.provider().machines() == []


def test_a_run_with_an_unexpected_error_does_not_prevent_the_end_of_others(app: PuzzledApp, laptop: Laptop) -> None:
    """Its failure is returned, and makes `kedge reap` exit 5."""
    (reaping,) = look_everywhere(app, ("local",), everyone=False).acts
    puzzling = replace(reaping, seen=replace(reaping.seen, run_id="odd-1121-ab2c", provider="lambda"))
    (failure,) = reap_all(app, (puzzling, reaping), print)
    assert failure.startswith("run odd-1121-ab2c: unexpected ValueError")
    assert laptop.provider().machines() == []
