"""Destroying a droplet: it ends only when the API confirms it, and everything else that bills is deleted with it."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.job import AtEnd
from orchestrator.core.machine import MachineState
from tests.adapters.digitalocean.world import GPU, M1, PLAIN, RUN, DoWorld, volume

DROPLET = "/v2/droplets/{droplet_id}"


@pytest.mark.parametrize("size", [GPU, PLAIN])
def test_a_droplet_is_gone_when_its_id_is_unknown_and_both_listings_lack_it(do: DoWorld, size: str) -> None:
    """After a deletion that is only accepted, the machine still exists, and the command says that it may bill."""
    do.api.settings.deletion_seconds = 300
    do.provider().create(do.order(instance_type=size))
    with pytest.raises(StillBillingError, match="may still be billing"):
        do.provider().destroy(M1)
    accepted = do.provider().describe(M1)
    assert accepted is not None
    assert accepted.state is MachineState.READY
    do.api.advance(301)
    do.api.calls.reset()
    assert do.provider().describe(M1) is None
    asked = [(call.path.rsplit("/", 1)[-1].isdecimal(), call.query.get("type")) for call in do.api.calls]
    assert asked[:3] == [(True, None), (False, None), (False, "gpus")]


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("status", [500, 503])
def test_a_deletion_that_fails_is_repeated_until_it_is_confirmed(do: DoWorld, status: int, after_effect: bool) -> None:
    """A second deletion changes nothing. If it answers 404, the first one worked."""
    do.provider().create(do.order())
    do.api.faults.fail_next("DELETE", DROPLET, status=status, times=3, after_effect=after_effect)
    do.provider().destroy(M1)
    assert do.api.droplets() == []
    assert do.provider().describe(M1) is None


def test_a_deletion_without_effect_is_repeated_until_the_droplet_is_gone(do: DoWorld) -> None:
    """Deleting a droplet that is still `new` answers 204 and has no effect. The pauses between the retries grow.

    fact: do-delete-new-without-effect
    """
    do.provider().create(do.order())
    (droplet,) = do.api.droplets()
    droplet.active_at = do.clock.now().timestamp() + 60
    do.api.calls.reset()
    do.provider().destroy(M1)
    assert do.api.droplets() == []
    assert do.provider().describe(M1) is None
    tries = [call.at for call in do.api.calls.find("DELETE", f"/v2/droplets/{droplet.id}")]
    assert 5 < len(tries) < 20
    do.provider().release(RUN)


def test_a_deletion_that_takes_a_while_is_waited_for(do: DoWorld) -> None:
    """A second deletion in the meantime is refused, which is not a failure.

    fact: do-delete-in-progress
    """
    do.api.settings.deletion_seconds = 20
    do.provider().create(do.order())
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None


def test_a_deletion_whose_answer_was_lost_is_repeated(do: DoWorld) -> None:
    """A second deletion changes nothing."""
    do.provider().create(do.order())
    do.api.faults.drop_next("DELETE", DROPLET)
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None


def test_a_deletion_that_is_never_confirmed_is_an_error(do: DoWorld) -> None:
    """The command fails, and the machine is still listed."""
    do.provider().create(do.order())
    do.api.faults.fail_next("DELETE", DROPLET, status=500, times=None)
    with pytest.raises(KedgeError, match="can't be deleted"):
        do.provider().destroy(M1)
    seen = do.provider().describe(M1)
    assert seen is not None
    assert seen.state is MachineState.READY


def test_a_droplet_that_reappears_is_seen_again_and_can_be_deleted_again(do: DoWorld) -> None:
    """The API confirmed its deletion wrongly. It bills, so kedge shows it as a machine."""
    do.provider().create(do.order())
    do.api.faults.reappear_next(seconds=20)
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None
    do.api.advance(21)
    back = do.provider().describe(M1)
    assert back is not None
    assert back.state is MachineState.ENDING
    assert [machine.id for machine in do.provider().machines()] == [M1]
    with pytest.raises(StillBillingError, match=RUN):
        do.provider().release(RUN)
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None
    do.provider().release(RUN)
    assert do.api.droplets() == []


def test_a_droplet_that_reappears_after_its_run_was_closed_is_found_by_its_tags(do: DoWorld) -> None:
    """Its record is deleted by then."""
    do.provider().create(do.order())
    do.api.faults.reappear_next(seconds=60)
    do.provider().destroy(M1)
    do.provider().release(RUN)
    do.api.advance(61)
    assert [machine.id for machine in do.provider().sweep().machines] == [M1]
    do.provider().destroy(M1)
    assert do.api.droplets() == []


def test_a_droplet_too_young_for_the_api_to_know_is_still_deleted(do: DoWorld) -> None:
    """A deletion that answers 404 proves that the droplet is gone only if the droplet is old enough."""
    do.api.settings.not_found_seconds = 60
    do.provider().create(do.order())
    do.provider().destroy(M1)
    assert do.api.droplets() == []
    assert do.provider().describe(M1) is None


def test_reserved_addresses_are_released_with_their_droplet(do: DoWorld) -> None:
    """A reserved address without a droplet bills. Other addresses of the account stay."""
    machine = do.provider().create(do.order())
    client = do.api.client()
    client.reserved_ips.create({"droplet_id": int(machine.provider_id)})
    client.reserved_ips.create({"region": "nyc3"})
    do.provider().destroy(M1)
    assert [each.region for each in do.api.cloud.account.reserved_ips.values()] == ["nyc3"]


def test_an_address_that_cannot_be_released_is_reported(do: DoWorld) -> None:
    """The droplet is gone, and the error says what may still bill."""
    machine = do.provider().create(do.order())
    do.api.client().reserved_ips.create({"droplet_id": int(machine.provider_id)})
    do.api.faults.fail_next("DELETE", "/v2/reserved_ips/*", status=422, times=None)
    with pytest.raises(StillBillingError, match="reserved address"):
        do.provider().destroy(M1)
    assert do.api.droplets() == []


@pytest.mark.parametrize("status", [429, 500])
def test_addresses_that_cannot_be_listed_do_not_prevent_the_deletion(do: DoWorld, status: int) -> None:
    """The droplet bills most, so it is deleted first. The error says what else may bill."""
    do.provider().create(do.order())
    do.api.faults.fail_next("GET", "/v2/reserved_ips", status=status, times=None)
    with pytest.raises(StillBillingError, match="reserved address"):
        do.provider().destroy(M1)
    assert do.api.droplets() == []
    do.provider().release(RUN)


def test_a_run_is_not_released_while_its_droplet_exists(do: DoWorld) -> None:
    """Its firewall protects it until the end."""
    do.provider().create(do.order())
    with pytest.raises(StillBillingError, match="is settled yet") as caught:
        do.provider().release(RUN)
    assert M1 in caught.value.why
    assert len(do.api.cloud.account.firewalls) == 1


def test_all_that_bills_is_gone_after_a_release(do: DoWorld) -> None:
    """The meter stops; it also counts volumes without a droplet."""
    do.provider().create(do.order(volumes=(volume(at_end=AtEnd.DELETE),)))
    do.provider().destroy(M1)
    do.provider().release(RUN)
    assert do.api.meter.billing() == []
    sweep = do.provider().sweep()
    assert (sweep.machines, sweep.leftovers) == ((), ())


def test_a_sweep_names_a_run_s_resources_besides_machines(do: DoWorld) -> None:
    """A user without this laptop's records can delete all of them."""
    do.provider().create(do.order(volumes=(volume(at_end=AtEnd.DELETE), volume("kept"))))
    do.other_laptop().provider().destroy(M1)
    reaper = do.other_laptop().provider()
    sweep = reaper.sweep()
    found = {(each.kind, each.run_id, each.kept) for each in sweep.leftovers if each.kind != "tag"}
    assert found == {
        ("data volume", RUN, False),
        ("data volume", RUN, True),
        ("firewall", RUN, False),
        ("project", RUN, False),
    }
    reaper.release(RUN)
    (rest,) = reaper.sweep().leftovers
    assert (rest.kind, rest.kept) == ("data volume", True)
    assert rest.usd_per_hour > 0
