"""What goes wrong on demand, and what really happened behind it."""

from __future__ import annotations

import time
from typing import Any

import pydo
import pytest
from azure.core.exceptions import HttpResponseError, ServiceResponseError

from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.orders import create, create_volume, gpus, order, status_of
from tests.support.waiting import wait_until

CREATIONS = ("POST", "/v2/droplets")
DELETIONS = ("DELETE", "/v2/droplets/{droplet_id}")


@pytest.mark.parametrize(("after_effect", "made"), [(False, 0), (True, 1)])
def test_a_creation_is_answered_with_500_before_or_after_its_effect(
    do_api: DigitalOceanBox, after_effect: bool, made: int
) -> None:
    """The client sees the same; the next creation is answered as ever."""
    do_api.faults.fail_next(*CREATIONS, after_effect=after_effect)
    assert status_of(do_api.client().droplets.create, order()) == 500
    assert len(gpus(do_api)) == len(do_api.droplets()) == made
    create(do_api)
    assert [call.status for call in do_api.calls.find(*CREATIONS)] == [500, 202]


@pytest.mark.parametrize(("after_effect", "made"), [(False, 0), (True, 1)])
def test_a_connection_breaks_before_or_after_the_effect(do_api: DigitalOceanBox, after_effect: bool, made: int) -> None:
    """The client gets no answer at all, and can't tell which it was."""
    do_api.faults.drop_next(*CREATIONS, after_effect=after_effect)
    with pytest.raises(ServiceResponseError):
        create(do_api)
    assert len(do_api.droplets()) == made
    (call,) = do_api.calls.find(*CREATIONS)
    assert (call.status, call.fault) == (None, "drop")


def test_the_clients_own_retries_create_twice(do_api: DigitalOceanBox) -> None:
    """Which is why they must be off for creations: three answers after the effect are three droplets too many.

    fact: do-no-idempotency-key
    """
    do_api.faults.fail_next(*CREATIONS, after_effect=True, times=3, status=503)
    trust: dict[str, Any] = {"endpoint": do_api.endpoint, "connection_verify": str(do_api.ca_file)}
    with pydo.Client(do_api.token, retry_backoff_factor=0.001, **trust) as careless:
        careless.droplets.create(order())
    assert len(do_api.droplets()) == 4


def test_an_answer_is_late_and_its_effect_is_not(do_api: DigitalOceanBox) -> None:
    """A client that waits too short a time has created a droplet all the same."""
    do_api.faults.delay_next(*CREATIONS, 5, after_effect=True)
    with pytest.raises(ServiceResponseError):
        do_api.client().droplets.create(order(), read_timeout=0.2)
    wait_until(lambda: len(do_api.droplets()) == 1)


def test_a_call_is_late_and_so_is_its_effect(do_api: DigitalOceanBox) -> None:
    """Two launches that race can be told apart by it."""
    do_api.faults.delay_next("GET", "/v2/account", 0.2)
    began = time.monotonic()
    do_api.client().account.get()
    assert time.monotonic() - began >= 0.2
    assert not do_api.faults.pending()


def test_a_new_droplet_is_not_found_in_its_first_seconds(do_api: DigitalOceanBox) -> None:
    """By its id, and in listings where that is set too; it bills all the while."""
    do_api.settings.not_found_seconds, do_api.settings.unlisted_seconds = 60, 10
    number = create(do_api)
    assert do_api.client().droplets.get(number)["id"] == "not_found"
    assert gpus(do_api) == []
    assert do_api.meter.billing()
    do_api.advance(11)
    assert gpus(do_api) == [number]
    assert do_api.client().droplets.destroy(number)["id"] == "not_found"
    do_api.advance(50)
    assert do_api.client().droplets.get(number)["droplet"]["id"] == number


@pytest.mark.parametrize(("after_effect", "left"), [(False, 1), (True, 0)])
def test_a_deletion_is_answered_with_500_with_or_without_effect(
    do_api: DigitalOceanBox, after_effect: bool, left: int
) -> None:
    """Only another look tells whether the droplet is gone."""
    number = create(do_api)
    do_api.faults.fail_next(*DELETIONS, after_effect=after_effect)
    assert status_of(do_api.client().droplets.destroy, number) == 500
    assert len(do_api.droplets()) == left


def test_a_deleted_droplet_reappears(do_api: DigitalOceanBox) -> None:
    """It never was gone: it bills while nobody sees it, and the next deletion counts."""
    number, client = create(do_api), do_api.client()
    do_api.faults.reappear_next(seconds=30)
    client.droplets.destroy(number)
    assert gpus(do_api) == []
    assert [bill.id for bill in do_api.meter.billing()] == [str(number)]
    do_api.advance(31)
    assert gpus(do_api) == [number]
    client.droplets.destroy(number)
    do_api.advance(3600)
    assert gpus(do_api) == []
    assert not do_api.droplets()


def test_a_fault_concerns_the_calls_that_it_names_and_no_others(do_api: DigitalOceanBox) -> None:
    """By method, and by exact path, template or wildcard; until cleared where no number of times is given."""
    number = create(do_api)
    do_api.faults.fail_next("GET", "/v2/droplets/{droplet_id}", times=None)
    assert gpus(do_api) == [number]
    do_api.client().droplet_actions.list(number)
    for _ in range(2):
        assert status_of(do_api.client().droplets.get, number) == 500
    do_api.faults.clear()
    do_api.faults.fail_next("*", "/v2/volumes*", status=503)
    do_api.client().droplets.get(number)
    with pytest.raises(HttpResponseError):
        create_volume(do_api)


def test_the_251st_call_of_a_minute_is_refused(do_api: DigitalOceanBox) -> None:
    """Until the first ones are a minute old; the account's limit of an hour holds as well."""
    client = do_api.client()
    for _ in range(250):
        client.droplets.get(1)
    assert _retry_after(do_api) is None
    do_api.advance(60)
    client.account.get()
    do_api.settings.requests_per_hour = 251
    assert _retry_after(do_api) is None
    do_api.advance(3600)
    client.account.get()


def test_a_refusal_by_rate_may_say_when_to_come_back(do_api: DigitalOceanBox) -> None:
    """By the limit itself, or ordered for the next calls."""
    do_api.settings.requests_per_minute, do_api.settings.retry_after = 1, True
    do_api.client().account.get()
    assert int(_retry_after(do_api) or 0) in range(30, 62)
    do_api.settings.requests_per_minute = 250
    do_api.faults.refuse_rate(times=2, retry_after=7)
    assert [_retry_after(do_api) for _ in range(2)] == ["7", "7"]
    do_api.client().account.get()


def _retry_after(do: DigitalOceanBox) -> str | None:
    """Make a call that must be refused for its rate, and return when it may be made again."""
    with pytest.raises(HttpResponseError) as refused:
        do.client().account.get()
    assert refused.value.status_code == 429
    response: Any = refused.value.response
    after: str | None = response.headers.get("Retry-After")
    return after
