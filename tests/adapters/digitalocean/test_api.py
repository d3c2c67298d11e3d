"""The wrapper for every call of the SDK: it replaces the SDK's own retries, pagination and error handling."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.providers.digitalocean.site import Site
from orchestrator.adapters.rest.failures import ApiError, BusyError, RefusedError, UnclearError
from orchestrator.core.errors import BadRequestError
from tests.adapters.digitalocean.world import DoWorld
from tests.support.box_time import BoxTime
from tests.support.ports import free_port

DROPLETS = "/v2/droplets"
BODY = {"name": "x", "region": "tor1", "size": "s-1vcpu-1gb", "image": "ubuntu-24-04-x64"}


def site(do: DoWorld, **changes: str) -> Site:
    said = {"endpoint": do.api.endpoint, "token": do.api.token, "ca_file": str(do.api.ca_file), **changes}
    return Site(name="do", token_names=("DIGITALOCEAN_ACCESS_TOKEN",), **said)


@pytest.fixture
def api(do: DoWorld) -> Api:
    return Api(site(do), BoxTime(do.api))


@pytest.mark.parametrize("status", [408, 500, 503, 504])
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_creation_that_fails_is_sent_once(do: DoWorld, api: Api, status: int, after_effect: bool) -> None:
    """The SDK would send it four times, and each request may have an effect."""
    do.api.faults.fail_next("POST", DROPLETS, status=status, after_effect=after_effect, times=None)
    with pytest.raises(UnclearError, match="x can't be made"):
        api.create("x can't be made", api.client.droplets.create, BODY)
    assert do.posts() == 1
    assert len(do.api.droplets()) == int(after_effect)


def test_a_dropped_creation_is_sent_once_and_is_unclear(do: DoWorld, api: Api) -> None:
    """The droplet exists although no answer said so."""
    do.api.faults.drop_next("POST", DROPLETS)
    with pytest.raises(UnclearError):
        api.create("x can't be made", api.client.droplets.create, BODY)
    assert (do.posts(), len(do.api.droplets())) == (1, 1)


@pytest.mark.parametrize("retry_after", [None, 11])
def test_a_creation_over_the_rate_limit_is_retried(do: DoWorld, api: Api, retry_after: int | None) -> None:
    """429 is the one answer that says that nothing was done. If it has Retry-After, kedge waits for that time."""
    do.api.faults.refuse_rate(times=2, retry_after=retry_after)
    begun = do.clock.now()
    api.create("x can't be made", api.client.droplets.create, BODY)
    assert (do.posts(), len(do.api.droplets())) == (3, 1)
    waited = do.clock.now() - begun
    assert waited >= timedelta(seconds=2 * (retry_after or 0))
    assert waited < timedelta(seconds=40)


def test_a_rate_limit_that_lasts_is_given_up(do: DoWorld, api: Api) -> None:
    """The wait is bounded, and the error says what it waited for."""
    do.api.faults.refuse_rate(times=None)
    begun = do.clock.now()
    with pytest.raises(BusyError, match="can't be listed") as caught:
        list(api.pages("x can't be listed", api.client.droplets.list, "droplets"))
    assert "429" in caught.value.why
    assert caught.value.fix
    assert do.clock.now() - begun < timedelta(minutes=3)


def test_the_account_s_rate_limit_is_waited_out(do: DoWorld, api: Api) -> None:
    """250 calls a minute are allowed; the next ones wait until the window has moved on."""
    do.api.settings.requests_per_minute = 5
    for _ in range(12):
        assert api.read("x can't be read", api.client.account.get) is not None
    assert any(call.status == 429 for call in do.api.calls)


@pytest.mark.parametrize("status", [500, 503])
def test_a_query_that_fails_is_retried(do: DoWorld, api: Api, status: int) -> None:
    """A second query changes nothing."""
    do.api.faults.fail_next("GET", "/v2/account", status=status, times=2)
    assert api.read("x can't be read", api.client.account.get) is not None
    assert len(do.api.calls.find("GET", "/v2/account")) == 3


def test_a_query_that_keeps_failing_is_given_up(do: DoWorld, api: Api) -> None:
    """After half a minute the error has the request and the answer."""
    do.api.faults.fail_next("GET", "/v2/account", status=500, times=None)
    with pytest.raises(UnclearError, match="x can't be read") as caught:
        api.read("x can't be read", api.client.account.get)
    assert "500" in caught.value.why


def test_a_missing_resource_is_none(do: DoWorld, api: Api) -> None:
    """The SDK returns 404 as an ordinary value, `{'id': 'not_found', ...}`."""
    clients = api.client
    assert api.read("x", clients.droplets.get, 7) is None
    assert api.read("x", clients.firewalls.get, "00000000-0000-4000-8000-000000000000") is None
    assert not api.delete("x", clients.droplets.destroy, 7)
    assert not api.delete("x", clients.tags.delete, "kedge-none")


@pytest.mark.parametrize("status", [400, 403, 409, 422])
def test_a_refusal_is_an_error_however_the_sdk_returns_it(do: DoWorld, api: Api, status: int) -> None:
    """For firewalls and volumes the SDK returns 400 as a value. Nothing was created."""
    bodies: dict[str, tuple[Any, dict[str, object]]] = {
        "/v2/firewalls": (api.client.firewalls.create, {"name": "x"}),
        "/v2/volumes": (api.client.volumes.create, {"name": "x", "size_gigabytes": 1, "region": "tor1"}),
    }
    for path, (operation, body) in bodies.items():
        do.api.faults.fail_next("POST", path, status=status, message="that is no good")
        with pytest.raises(RefusedError, match="x can't be made") as caught:
            api.create("x can't be made", operation, body)
        assert caught.value.status == status
        assert "that is no good" in caught.value.why


def test_the_error_for_a_rejected_token_names_the_variable(do: DoWorld) -> None:
    """401 is not retried, and the fix names the page about scopes."""
    api = Api(site(do, token="dop_v1_wrong"), BoxTime(do.api))
    with pytest.raises(RefusedError) as caught:
        api.read("x can't be read", api.client.account.get)
    assert caught.value.status == 401
    assert "token" in caught.value.fix
    assert len(do.api.calls) == 1


def test_a_refused_connection_is_a_clear_refusal(do: DoWorld) -> None:
    """A request that was never sent has created nothing, so another attempt is safe."""
    api = Api(site(do, endpoint=f"https://127.0.0.1:{free_port()}"), BoxTime(do.api))
    with pytest.raises(RefusedError) as caught:
        api.create("x can't be made", api.client.droplets.create, BODY)
    assert caught.value.status == 0
    assert "network" in caught.value.fix


def test_an_endpoint_with_an_untrusted_certificate_is_a_clear_refusal(do: DoWorld) -> None:
    """The token is not sent to it."""
    system = ssl.get_default_verify_paths().cafile or ""
    api = Api(site(do, ca_file=system), BoxTime(do.api))
    with pytest.raises(RefusedError) as caught:
        api.create("x can't be made", api.client.droplets.create, BODY)
    assert caught.value.status == 0
    assert len(do.api.calls) == 0


@pytest.mark.parametrize(
    ("changes", "words"), [({"token": ""}, "no API token"), ({"endpoint": "http://127.0.0.1:1"}, "over https only")]
)
def test_an_unusable_configuration_is_refused_before_any_request(
    do: DoWorld, changes: dict[str, str], words: str
) -> None:
    """A missing token, and an endpoint to which no token may be sent."""
    with pytest.raises(BadRequestError) as caught:
        _ = Api(site(do, **changes), BoxTime(do.api)).client
    assert words in caught.value.why
    assert caught.value.fix


def test_a_list_is_read_to_its_end(do: DoWorld, api: Api) -> None:
    """Over all of its pages. A page that fails is an error and not the end of the list."""
    for number in range(7):
        api.create("x", api.client.tags.create, {"name": f"kedge-{number}"})
    do.api.calls.reset()
    names = [fields["name"] for fields in api.pages("x", api.client.tags.list, "tags", per_page=3)]
    assert names == [f"kedge-{number}" for number in range(7)]
    do.api.faults.fail_next("GET", "/v2/tags", status=403)
    with pytest.raises(ApiError):
        list(api.pages("x can't be listed", api.client.tags.list, "tags"))


def test_the_repr_of_a_site_has_no_secret(do: DoWorld, tmp_path: Path) -> None:
    """Logs and tracebacks contain reprs."""
    assert do.api.token not in repr(site(do))
