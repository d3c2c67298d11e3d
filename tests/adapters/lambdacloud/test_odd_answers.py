"""Unexpected answers from Lambda, and tags that others have edited: nothing is left billing because of them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from orchestrator.adapters.cloud.model import UNDATED
from orchestrator.adapters.providers.lambdacloud.api import Listed
from orchestrator.adapters.providers.lambdacloud.cloud_api import parse_instance
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DEFAULT_TIME_LIMIT
from orchestrator.core.machine import MachineState
from tests.adapters.lambdacloud.world import M1, REGION, RUN, TERMINATE, LambdaWorld

OTHER = "other-1121-ab2c"
SECOND_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDmWgZpBUvQvSbSQx8xqN5NVOdIzNOYHTbLWrHqPCzXa other"


def tags(**changed: str) -> list[dict[str, str]]:
    """Return the tags of a machine that another computer made, some of them changed."""
    usual = {
        "kedge-machine": f"{OTHER}-m1",
        "kedge-run": OTHER,
        "kedge-attempt": "0a",
        "kedge-asked-at": "2026-11-21T08:00:00+00:00",
        "kedge-lifetime": "3600",
        "kedge-usd-per-hour": "4.29",
    }
    usual |= {f"kedge-{name.replace('_', '-')}": value for name, value in changed.items()}
    return [{"key": key, "value": value} for key, value in usual.items()]


@pytest.mark.parametrize(
    "odd",
    [
        {"asked_at": "1790000000"},
        {"asked_at": "2026-11-21T08:00:00"},
        {"asked_at": "9999-12-31T23:59:59+00:00"},
        {"asked_at": ""},
        {"lifetime": "1h"},
        {"lifetime": "9" * 30},
        {"lifetime": "-5"},
        {"lifetime": "\u0663"},
        {"usd_per_hour": "free"},
        {"usd_per_hour": "NaN"},
        {"usd_per_hour": "1e999999"},
    ],
)
def test_a_machine_with_an_odd_tag_does_not_hide_other_machines(lam: LambdaWorld, odd: dict[str, str]) -> None:
    """Another version of kedge or a person wrote the tag. All machines are listed, and this one can be ended."""
    lam.lam.settings.unlisted_seconds = 0
    lam.provider().create(lam.order())
    lam.lam.crowd(1, tags=tags(**odd))
    lam.clock.sleep(timedelta(minutes=1))
    seen = {machine.id: machine for machine in lam.provider().sweep().machines}
    assert set(seen) == {M1, f"{OTHER}-m1"}
    machine = seen[f"{OTHER}-m1"]
    assert machine.deadline_at > machine.created_at
    assert 0 <= machine.usd_per_hour < 1_000_000
    lam.provider().destroy(machine.id)
    assert lam.lam.foreign() == []


def read(**changed: Any) -> Listed:
    """Decode an instance that has the given fields, and otherwise only what is needed to end it."""
    shown = {"id": "0920582c7ff041399e34823a0be62549", "status": "active", "region": {"name": REGION}} | changed
    return msgspec.json.decode(msgspec.json.encode(shown), type=Listed)


def test_an_unreadable_tag_counts_as_missing() -> None:
    """The machine is undated, with the default time limit and without a price."""
    seen = parse_instance(read(tags=tags(asked_at="yesterday", lifetime="long", usd_per_hour="dear")))
    assert (seen.created_at, seen.lifetime, seen.usd_per_hour) == (UNDATED, DEFAULT_TIME_LIMIT, Decimal(0))
    seen = parse_instance(read(tags=tags()))
    assert (seen.lifetime, seen.usd_per_hour) == (timedelta(hours=1), Decimal("4.29"))
    assert seen.created_at != UNDATED


@pytest.mark.parametrize(
    ("odd", "price"),
    [
        ({}, "0"),
        ({"instance_type": {"name": "new", "price_cents_per_hour": 129.5}}, "1.295"),
        ({"instance_type": {"name": "free", "price_cents_per_hour": None}}, "0"),
        ({"instance_type": {"name": "dear", "price_cents_per_hour": 1e300}}, "0"),
        ({"instance_type": {"name": "odd", "price_cents_per_hour": True}}, "0"),
        ({"instance_type": {"name": "odder", "price_cents_per_hour": -129}}, "0"),
        ({"region": None, "tags": [{"key": "team", "value": None}]}, "0"),
        ({"instance_type": "gpu_1x_a10", "ip": {"v4": "203.0.113.1"}, "private_ip": 7, "name": []}, "0"),
    ],
)
def test_only_the_fields_that_end_an_instance_are_required(odd: dict[str, Any], price: str) -> None:
    """Somebody else's instance of a new type must not make the whole listing unreadable."""
    seen = parse_instance(read(**odd))
    assert (seen.machine_id, seen.host, seen.list_usd_per_hour) == ("", "", Decimal(price))


def test_a_booting_machine_with_an_address_counts_as_ready(lam: LambdaWorld) -> None:
    """Lambda may call it active only minutes later, after the boot watchdog would have ended it.

    fact: lambda-address-while-booting
    """
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(seconds=20))
    assert lam.provider().machines()[0].state is MachineState.BOOTING
    lam.clock.sleep(timedelta(seconds=30))
    (machine,) = lam.provider().machines()
    assert (machine.state, lam.lam.cloud.account.status(lam.lam.instances()[0])) == (MachineState.READY, "booting")


def test_an_instance_that_has_a_machines_name_and_no_tags_is_reported(lam: LambdaWorld) -> None:
    """An instance with a machine's name and no tags may be a launch whose answer was lost: nothing else reports it.

    Instances with other names belong to other people.
    """
    lam.lam.crowd(1, name=f"{OTHER}-m1")
    lam.lam.crowd(3)
    swept = lam.provider().sweep()
    assert swept.machines == ()
    (left,) = swept.leftovers
    (named,) = [one for one in lam.lam.foreign() if one.name == f"{OTHER}-m1"]
    assert (left.name, left.run_id, left.created_at) == (named.id, "", None)
    assert left.usd_per_hour == Decimal("1.29")


def test_an_instance_that_is_terminating_is_not_waited_for(lam: LambdaWorld) -> None:
    """It no longer bills, and other machines still have to be ended. fact: lambda-terminate-ends-billing."""
    lam.lam.settings.ending_seconds = 1e6
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=5))
    before = lam.clock.now()
    lam.provider().destroy(M1)
    assert lam.clock.now() - before < timedelta(minutes=1)
    assert lam.provider().describe(M1) is None
    assert lam.lam.meter.billing() == []


def test_the_reason_for_a_refused_termination_is_logged(lam: LambdaWorld, caplog: pytest.LogCaptureFixture) -> None:
    """The termination is sent again, because an instance can't be ended in its first seconds."""
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=5))
    refusal = '{"error": {"code": "global/conflict", "message": "The instance is being migrated."}}'
    lam.lam.faults.fail_next(*TERMINATE, status=409, text=refusal)
    lam.provider().destroy(M1)
    assert "The instance is being migrated." in caplog.text


def test_two_keys_of_this_computer_in_one_account_are_one_account(lam: LambdaWorld) -> None:
    """Two first launches at once add two keys, because names aren't unique.

    So does a new key in the same state folder.
    """
    lam.provider().create(lam.order())
    lam.provider().create(lam.order(2, run_id=OTHER, id=f"{OTHER}-m1", authorized_key=SECOND_KEY))
    assert len(lam.lam.cloud.account.keys) == 2
    lam.clock.sleep(timedelta(minutes=5))
    provider = lam.provider()
    for run_id, machine_id in ((RUN, M1), (OTHER, f"{OTHER}-m1")):
        provider.destroy(machine_id)
        provider.create(lam.order(3, run_id=run_id, id=f"{run_id}-m2"))
        provider.destroy(f"{run_id}-m2")
        provider.release(run_id)
    assert lam.lam.instances() == []


def test_a_key_that_is_listed_late_still_identifies_the_account(lam: LambdaWorld) -> None:
    """A record without an account would match any account: with another account's key its machine would seem gone."""
    lam.lam.faults.fail_next("GET", "/api/v1/ssh-keys", status=200, text='{"data": []}', times=2)
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=20))
    assert lam.provider().describe(M1)
    with lam.other_account(), pytest.raises(BadRequestError, match="another Lambda account"):
        lam.provider().describe(M1)
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []
