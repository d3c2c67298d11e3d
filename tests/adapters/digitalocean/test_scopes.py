"""The documented scopes are exactly what is needed: whole life cycles with tokens that have these scopes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd, Resources
from tests.adapters.digitalocean.world import M1, RUN, DoWorld, volume

DOCS = Path(__file__).parents[3] / "docs"
_SCOPE = re.compile(r"`([a-z_]+:[a-z_]+)`")
_RESOURCE = re.compile(r"`([a-z_]+)`")
_DEEDS = ("create", "read", "update", "delete")
_DEEDS_OF = {"block_storage_action": ("create", "read"), "block_storage": ("create", "read", "delete")}


def operators_scopes() -> list[str]:
    """Read the scopes of kedge's token from docs/digitalocean.md."""
    page = (DOCS / "digitalocean.md").read_text()
    (text,) = re.findall(r"A custom-scoped token for kedge itself needs (.*?)without these two", page, re.DOTALL)
    resources = _RESOURCE.findall(text)
    named = [f"{each}:{deed}" for each in resources for deed in _DEEDS_OF.get(each, _DEEDS)]
    return [*_SCOPE.findall(text), *named]


def reapers_scopes() -> list[str]:
    """Read the scopes of a reaper's token from docs/reaper.md."""
    page = (DOCS / "reaper.md").read_text()
    return _SCOPE.findall(page[page.index("**DigitalOcean's token**") :])


def with_token(do: DoWorld, *scopes: str) -> DoWorld:
    return replace(do, environ={"DIGITALOCEAN_ACCESS_TOKEN": do.api.make_token(*scopes)})


def test_the_documented_scopes_are_enough_for_a_whole_life(new_do: DoWorld) -> None:
    """Offers, key, volumes, firewall, droplet, its action, another address, its end and its leftovers.

    fact: do-scopes-require-read
    """
    do = with_token(new_do, *operators_scopes())
    provider = do.provider()
    assert provider.offers(_resources())
    provider.create(do.order(volumes=(volume(at_end=AtEnd.SNAPSHOT),)))
    provider.guard(M1)
    provider.reopen(M1, "198.51.100.9/32")
    provider.destroy(M1)
    provider.release(RUN)
    assert {call.status for call in do.api.calls} & {401, 403} == set()
    assert do.api.droplets() == []


@pytest.mark.parametrize("left_out", ["droplet:create", "ssh_key:create", "firewall:create", "tag:create"])
def test_without_one_of_the_scopes_nothing_is_created_and_the_error_has_the_fix(new_do: DoWorld, left_out: str) -> None:
    """The API answers 403."""
    do = with_token(new_do, *(scope for scope in operators_scopes() if scope != left_out))
    with pytest.raises(KedgeError) as caught:
        do.provider().create(do.order())
    assert "docs/digitalocean.md" in caught.value.fix
    assert do.api.droplets() == []


def test_a_reaper_s_token_lists_and_ends_and_creates_nothing(do: DoWorld) -> None:
    """With the documented scopes it ends another computer's machine, and deletes the run's other resources."""
    do.provider().create(do.order(volumes=(volume(at_end=AtEnd.SNAPSHOT),)))
    reaper = with_token(do.other_laptop(), *reapers_scopes())
    do.api.calls.reset()
    sweep = reaper.provider().sweep()
    assert [machine.id for machine in sweep.machines] == [M1]
    reaper.provider().destroy(M1)
    reaper.provider().release(RUN)
    assert {call.status for call in do.api.calls} & {401, 403} == set()
    assert do.api.droplets() == []
    with pytest.raises(KedgeError):
        reaper.provider().create(do.order())
    assert do.api.droplets() == []


def _resources() -> Resources:
    return Resources(regions=("tor1",))
