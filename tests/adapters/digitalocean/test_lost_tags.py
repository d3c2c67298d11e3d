"""Tags that somebody removes in the control panel: the computer that created a droplet knows it by its id."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.machine import MachineState
from tests.adapters.digitalocean.world import GPU, M1, PLAIN, RUN, DoWorld


def take_tags(do: DoWorld, *keep: str) -> None:
    """Remove all tags from the run's droplet, as a person might, except those with these prefixes."""
    (droplet,) = do.api.droplets()
    resource = {"resources": [{"resource_id": str(droplet.id), "resource_type": "droplet"}]}
    for tag in list(droplet.tags):
        if not tag.startswith(keep):
            do.api.client().tags.unassign_resources(tag, resource)
    assert all(tag.startswith(keep) for tag in droplet.tags)


@pytest.mark.parametrize("size", [GPU, PLAIN])
def test_a_droplet_without_tags_is_seen_and_ended(do: DoWorld, size: str) -> None:
    """Every look-up has its run, its price and its address; none says that it is gone.

    fact: do-tags-removable
    """
    before = do.provider().create(do.order(instance_type=size))
    take_tags(do)
    do.api.advance(1000)
    seen = do.provider().describe(M1)
    assert seen == before
    assert [machine.id for machine in do.provider().machines()] == [M1]
    assert [(each.id, each.run_id) for each in do.provider().sweep().machines] == [(M1, RUN)]
    with pytest.raises(StillBillingError):
        do.provider().release(RUN)
    do.provider().create(do.order(instance_type=size))
    assert len(do.api.droplets()) == 1
    do.provider().destroy(M1)
    assert do.api.droplets() == []
    assert do.provider().describe(M1) is None
    do.provider().release(RUN)


@pytest.mark.parametrize("stays", ["kedge-run:", "kedge-machine:", "kedge-order:"])
def test_one_remaining_tag_is_enough_for_a_sweep(do: DoWorld, stays: str) -> None:
    """A computer without a record finds it by any tag of kedge's, and reports at least its price."""
    do.provider().create(do.order())
    take_tags(do, stays)
    other = do.other_laptop().provider().sweep()
    named = [each.name for each in other.leftovers if each.kind == "droplet"] + [each.id for each in other.machines]
    assert len(named) == 1
    mine = do.provider().sweep()
    assert [each.id for each in mine.machines] == [M1]
    assert [each for each in mine.leftovers if each.kind == "droplet"] == []


def test_a_droplet_that_reappears_without_tags_is_seen_and_ended(do: DoWorld) -> None:
    """Its deletion was confirmed, but the API lists its id again."""
    do.provider().create(do.order())
    take_tags(do)
    do.api.faults.reappear_next(seconds=20)
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None
    do.api.advance(21)
    back = do.provider().describe(M1)
    assert back is not None
    assert back.state is MachineState.ENDING
    do.provider().destroy(M1)
    assert do.api.droplets() == []


def test_a_sweep_that_may_not_read_tags_fails(do: DoWorld) -> None:
    """The API shows such a token droplets without tags. That does not prove that the account is empty.

    fact: do-fields-need-scopes
    """
    do.provider().create(do.order())
    reads = ("droplet", "actions", "image", "regions", "sizes", "block_storage", "firewall", "project", "account")
    do.environ["DIGITALOCEAN_ACCESS_TOKEN"] = do.api.make_token(*(f"{what}:read" for what in reads))
    with pytest.raises(KedgeError):
        do.provider().sweep()
