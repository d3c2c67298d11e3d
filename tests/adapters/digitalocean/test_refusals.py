"""Each row of the table of refusals: how the API's message is recognised, and which error results."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.adapters.cloud.refusals import Reaction, translate_refusal
from orchestrator.adapters.providers.digitalocean.failures import refusal_of
from orchestrator.adapters.providers.digitalocean.instances.refusal_table import REFUSALS
from orchestrator.adapters.providers.digitalocean.instances.refusals import read_refusal
from orchestrator.adapters.rest.failures import RefusedError
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Accelerators
from tests.support.orders import make_offer

GPU = make_offer("do", "gpu-h100x1-80gb", "nyc2", accelerators=Accelerators(name="h100"), usd_per_hour=Decimal("3.39"))
ORDER = MachineOrder(
    id="digits-1121-ab2c-m1",
    run_id="digits-1121-ab2c",
    offer=GPU,
    lifetime_seconds=3600,
    authorized_key="",
    agent_archive=b"",
    store_url="",
)


def refusal(status: int, message: str) -> RefusedError:
    return refusal_of(status, {"message": message}, "machine digits-1121-ab2c-m1 can't be created")


def test_each_row_matches_each_of_its_messages() -> None:
    """No earlier row matches them. The error's placeholders are all filled in."""
    for known in REFUSALS:
        for code in known.codes:
            for part in known.parts:
                read = read_refusal(refusal(int(code), f"Sorry: {part.upper()}."))
                assert read.refusal is known
                error = translate_refusal(read, ORDER)
                assert part.upper() in error.why
                assert error.fix
                assert "{" not in f"{error.what}{error.fix}"


@pytest.mark.parametrize(
    ("status", "message", "reaction"),
    [
        (422, "ssh_keys: 12 are invalid key identifiers for Droplet creation.", Reaction.NOT_YET),
        (403, "ssh_keys: 12 are invalid key identifiers for Droplet creation.", Reaction.STOP),
        (422, "This size is not available in your tier.", Reaction.NEVER_HERE),
        (422, "creating this/these droplet(s) will exceed your GPU limit", Reaction.NEXT_QUOTA),
        (422, "creating this/these droplet(s) will exceed your droplet limit", Reaction.NEVER_AT_ALL),
        (422, "Size is not available in this region.", Reaction.NEXT_POOL),
        (404, "Size is not available in this region.", Reaction.STOP),
        (422, "Name is invalid", Reaction.STOP),
    ],
)
def test_the_reaction_follows_from_the_api_s_message_and_status(status: int, message: str, reaction: Reaction) -> None:
    """Only 403 and 422 can be a lack of capacity."""
    err = refusal(status, message)
    read = read_refusal(err)
    assert read.reaction is reaction
    error = translate_refusal(read, ORDER)
    assert isinstance(error, NoCapacityError) is (reaction not in (Reaction.NOT_YET, Reaction.STOP))
    assert (error is err) is (reaction is Reaction.STOP)


def test_the_limit_of_gpus_rules_out_every_offer_with_gpus() -> None:
    """In every size and region. Machines without GPUs count against another limit.

    fact: do-gpu-limit
    """
    error = translate_refusal(read_refusal(refusal(422, "will exceed your GPU limit")), ORDER)
    assert isinstance(error, NoCapacityError)
    assert error.covers(replace(GPU, region="tor1", instance_type="gpu-mi300x1-192gb"))
    assert not error.covers(replace(GPU, accelerators=None))
