"""Anybody can add and remove tags: droplets with odd tags are still found, and no tag breaks a command."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.core.errors import KedgeError, StillBillingError
from tests.adapters.digitalocean.world import GPU, M1, PLAIN, RUN, DoWorld

ODD = [
    [],
    ["kedge-run:digits-9"],
    ["kedge-run:digits-9", "kedge-machine:_no-id"],
    ["kedge-run:digits-9", "kedge-machine:"],
]


def make_droplet(do: DoWorld, *tags: str, size: str = GPU) -> int:
    """Create a droplet as another user does, and return its number."""
    body = {"name": "odd", "region": "tor1", "size": size, "image": "ubuntu-24-04-x64", "tags": ["kedge", *tags]}
    return int(do.api.client().droplets.create(body)["droplet"]["id"])


@pytest.mark.parametrize("size", [GPU, PLAIN])
@pytest.mark.parametrize("tags", ODD, ids=["none", "run", "no id", "empty"])
def test_a_droplet_of_kedge_without_a_machine_id_is_a_leftover(do: DoWorld, tags: list[str], size: str) -> None:
    """It bills, and no command can name it as a machine. The sweep reports it, and continues with the others."""
    do.provider().create(do.order())
    odd = make_droplet(do, *tags, size=size)
    sweep = do.provider().sweep()
    assert [machine.id for machine in sweep.machines] == [M1]
    (found,) = [left for left in sweep.leftovers if left.kind == "droplet"]
    assert (found.name, found.region, found.kept, found.run_id) == (str(odd), "tor1", False, "")
    assert found.usd_per_hour > 0


def test_a_run_is_not_released_while_it_has_a_droplet_without_a_machine_id(do: DoWorld) -> None:
    """The firewall still protects the droplet, and the error names it."""
    odd = make_droplet(do, f"kedge-run:{RUN}")
    with pytest.raises(StillBillingError) as caught:
        do.provider().release(RUN)
    assert str(odd) in caught.value.why


@pytest.mark.parametrize("order", ["a1:99999999999999999:1_99", "a1:3600:9999999999"])
def test_an_impossible_order_in_a_tag_is_ignored(do: DoWorld, order: str) -> None:
    """A lifetime of a billion years is no valid date, and must not break the listing."""
    make_droplet(do, f"kedge-machine:{M1}", f"kedge-order:{order}:{M1}")
    (machine,) = do.provider().machines()
    assert (machine.id, machine.usd_per_hour) == (M1, Decimal(0))


def test_a_volume_without_a_run_is_reported(do: DoWorld) -> None:
    """A command that dies between two runs' tags leaves it with neither. It bills, and is kept."""
    tags = ["kedge", "kedge-created", "kedge-volume:scans"]
    do.api.client().volumes.create({"name": "scans", "size_gigabytes": 1, "region": "tor1", "tags": tags})
    (found,) = do.provider().sweep().leftovers
    assert (found.kind, found.kept) == ("data volume", True)
    assert found.usd_per_hour > 0


def test_a_droplet_keeps_its_lifetime_if_the_tag_with_the_new_one_can_not_be_put_on_it(do: DoWorld) -> None:
    """The API may not know a tag yet that it has just created. Other computers know the lifetime from the tag alone."""
    provider = do.provider()
    before = provider.create(do.order()).deadline_at
    do.api.advance(60)
    do.api.faults.fail_next("POST", "/v2/tags/{tag_id}/resources", status=404)
    with pytest.raises(KedgeError, match="can't be tagged"):
        provider.move_deadline(M1, before + timedelta(hours=1))
    (seen,) = do.other_laptop().provider().machines()
    assert abs(seen.deadline_at - before) < timedelta(seconds=2)
    provider.move_deadline(M1, before + timedelta(hours=1))
    (seen,) = do.other_laptop().provider().machines()
    assert abs(seen.deadline_at - before) > timedelta(minutes=59)
