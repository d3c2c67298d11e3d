"""What goes wrong at Lambda and in front of it, and what really happened behind it."""

from __future__ import annotations

import base64
from email.utils import parsedate_to_datetime

import pytest
import urllib3.exceptions

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.orders import add_key, code_of, launch, listed, order, terminate, try_launch
from tests.cloudbox.lambdacloud.rates import LAUNCH
from tests.cloudbox.rest.client import Reply
from tests.support.waiting import wait_until

LISTING = ("GET", "/api/v1/instances")


@pytest.mark.parametrize(("after_effect", "made"), [(False, 0), (True, 1)])
@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "global/internal-error"), (504, "global/unknown"), (400, "provider/internal-unavailable")],
)
def test_a_launch_fails_with_or_without_an_instance(
    lambda_api: LambdaBox, after_effect: bool, made: int, status: int, code: str
) -> None:
    """The client sees the same. fact: lambda-provider-errors; fact: lambda-unknown-codes."""
    add_key(lambda_api)
    lambda_api.faults.fail_next(*LAUNCH, status=status, code=code, after_effect=after_effect)
    assert code_of(lambda_api.client().call(*LAUNCH, order())) == (status, code)
    assert len(lambda_api.instances()) == len(listed(lambda_api)) == made


@pytest.mark.parametrize(("after_effect", "made"), [(False, 0), (True, 1)])
def test_the_answer_to_a_launch_is_lost(lambda_api: LambdaBox, after_effect: bool, made: int) -> None:
    """The connection breaks after the effect, or before it."""
    add_key(lambda_api)
    lambda_api.faults.drop_next(*LAUNCH, after_effect=after_effect)
    with pytest.raises(urllib3.exceptions.HTTPError):
        lambda_api.client().call(*LAUNCH, order())
    assert len(lambda_api.instances()) == made
    (call,) = lambda_api.calls.find(*LAUNCH)
    assert (call.status, call.fault) == (None, "drop")


def test_the_answer_to_a_launch_is_late(lambda_api: LambdaBox) -> None:
    """Real ones take up to nine seconds: a client that waits too short a time has launched all the same."""
    add_key(lambda_api)
    lambda_api.faults.delay_next(*LAUNCH, 5, after_effect=True)
    with pytest.raises(urllib3.exceptions.HTTPError):
        lambda_api.client().call(*LAUNCH, order(), wait=1)
    wait_until(lambda: len(lambda_api.instances()) == 1)


def test_the_answer_to_a_launch_is_empty(lambda_api: LambdaBox) -> None:
    """Status 200 and nothing: the instance is there."""
    lambda_api.faults.empty_answer(*LAUNCH)
    reply = try_launch(lambda_api)
    assert (reply.status, reply.text) == (200, "")
    assert len(lambda_api.instances()) == 1


def test_a_fault_after_the_effect_waits_for_a_call_that_has_one(lambda_api: LambdaBox) -> None:
    """A refused launch doesn't use it up."""
    add_key(lambda_api)
    lambda_api.faults.drop_next(*LAUNCH)
    assert try_launch(lambda_api, quantity=2).status == 400
    with pytest.raises(urllib3.exceptions.HTTPError):
        try_launch(lambda_api)
    assert len(lambda_api.instances()) == 1


def test_a_fault_that_no_box_knows_is_refused(lambda_api: LambdaBox) -> None:
    """A misspelt one would never happen, and its test would pass."""
    with pytest.raises(ValueError, match="no such effect: vanish"):
        lambda_api.faults.order_fields({"method": "GET", "path": "/api/v1/instances", "effect": "vanish"})


def limited(reply: Reply) -> tuple[int, str, str]:
    return reply.status, reply.headers["Content-Type"].partition(";")[0], reply.text.strip()


def test_requests_come_one_a_second_over_all_clients(lambda_api: LambdaBox) -> None:
    """Another key of the account waits with it. fact: lambda-rate-limits; fact: lambda-429-is-no-json."""
    # Longer than Lambda's second, which two calls can take on a busy computer.
    lambda_api.settings.seconds_between_requests = 60
    lambda_api.cloud.account.api_keys.add("secret_other")
    lambda_api.advance(60)
    assert lambda_api.client().call(*LISTING).status == 200
    refused = lambda_api.client("secret_other").call(*LISTING)
    assert limited(refused) == (429, "text/plain", "error code: 1015")
    assert "Retry-After" not in refused.headers
    lambda_api.advance(60)
    assert lambda_api.client("secret_other").call(*LISTING).status == 200


def test_launches_come_one_in_twelve_seconds(lambda_api: LambdaBox) -> None:
    """Whatever became of the one before; a refused one made nothing, and other requests are answered meanwhile."""
    # Longer than Lambda's twelve: what is called meanwhile takes time as well.
    lambda_api.settings.seconds_between_launches = 120
    assert code_of(try_launch(lambda_api, name="n" * 65))[0] == 400
    assert limited(try_launch(lambda_api))[0] == 429
    assert not lambda_api.instances()
    assert listed(lambda_api) == {}
    lambda_api.advance(60)
    assert limited(try_launch(lambda_api))[0] == 429
    lambda_api.advance(60)
    assert try_launch(lambda_api).status == 200


def test_a_refusal_by_rate_has_many_forms(lambda_api: LambdaBox) -> None:
    """403 too, with or without a time to come back, as seconds or as a date, and JSON. fact: lambda-429-is-no-json."""
    settings, client = lambda_api.settings, lambda_api.client()
    settings.seconds_between_requests, settings.rate_refusal = 30, "cloudflare-403"
    assert client.call(*LISTING).status == 200
    assert limited(client.call(*LISTING)) == (403, "text/plain", "error code: 1015")
    settings.retry_after = "seconds"
    assert int(client.call(*LISTING).headers["Retry-After"]) in range(15, 31)
    settings.rate_refusal, settings.retry_after = "json", "date"
    refused = client.call(*LISTING)
    assert code_of(refused) == (429, "global/rate-limited")
    assert parsedate_to_datetime(refused.headers["Retry-After"]).timestamp() > lambda_api.cloud.clock.now() + 10
    settings.seconds_between_requests = 0
    lambda_api.faults.refuse_rate(times=2, retry_after=7)
    assert [client.call(*LISTING).headers.get("Retry-After") for _ in range(3)] == ["7", "7", None]


def test_a_look_fails_with_a_page_of_html(lambda_api: LambdaBox) -> None:
    """Which says nothing of what is there. fact: lambda-502-on-polls."""
    launch(lambda_api)
    lambda_api.faults.fail_html(*LISTING)
    assert limited(lambda_api.client().call(*LISTING))[:2] == (502, "text/html")
    assert len(listed(lambda_api)) == 1


@pytest.mark.parametrize("agent", ["Python-urllib/3.11", ""])
def test_cloudflare_refuses_a_client_that_says_nothing_of_itself(lambda_api: LambdaBox, agent: str) -> None:
    """With 403 and no JSON, whatever the key. fact: lambda-needs-a-user-agent; fact: lambda-cloudflare-answers."""
    refused = lambda_api.client().call(*LISTING, headers={"User-Agent": agent})
    assert limited(refused) == (403, "text/plain", "error code: 1010")
    lambda_api.faults.block(*LISTING)
    assert limited(lambda_api.client().call(*LISTING)) == (403, "text/plain", "error code: 1020")


def test_the_old_host_redirects(lambda_api: LambdaBox) -> None:
    """A client that follows repeats its call, and maybe its launch. fact: lambda-old-host."""
    lambda_api.faults.redirect(*LAUNCH, f"{lambda_api.endpoint}{LAUNCH[1]}")
    reply = try_launch(lambda_api)
    assert (reply.status, reply.headers["Location"]) == (301, f"{lambda_api.endpoint}{LAUNCH[1]}")
    assert not lambda_api.instances()


def test_keys_are_bearers_or_users_and_may_be_revoked(lambda_api: LambdaBox) -> None:
    """A wrong one is refused in Lambda's envelope, at any moment.

    fact: lambda-authorization; fact: lambda-error-codes
    """
    basic = base64.b64encode(f"{lambda_api.api_key}:".encode()).decode()
    client = lambda_api.client()
    assert client.call(*LISTING, headers={"Authorization": f"Basic {basic}"}).status == 200
    refused = (401, "global/invalid-api-key")
    for wrong in ("", "Bearer secret_other", "Basic !", f"Basic {base64.b64encode(b'a:b').decode()}"):
        assert code_of(client.call(*LISTING, headers={"Authorization": wrong})) == refused
    made = launch(lambda_api)
    lambda_api.revoke()
    assert code_of(client.call(*LISTING)) == code_of(terminate(lambda_api, made)) == refused
    assert lambda_api.meter.billing()


def test_an_unknown_path_is_not_an_unknown_instance(lambda_api: LambdaBox) -> None:
    """The same status with another code: a client whose paths are wrong must not believe that all is gone."""
    client = lambda_api.client()
    assert code_of(client.call("GET", "/api/v1/instance")) == (404, "global/not-found")
    assert code_of(client.call("GET", "/api/v1/instances/none")) == (404, "global/object-does-not-exist")
