"""The box against DigitalOcean's own description of its API, in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cloudbox.digitalocean.account.description import FILE, load_description
from tests.cloudbox.digitalocean.box import DigitalOceanBox, start_box
from tests.cloudbox.digitalocean.gate import ROUTES
from tests.cloudbox.digitalocean.orders import create, gpus, order, status_of
from tests.cloudbox.rest.call import Answer, parse_call
from tests.cloudbox.rest.description import Description


@pytest.fixture(scope="module")
def description() -> Description:
    found = load_description()
    if found is None:
        pytest.skip(f"{FILE.name} is not here: the box works without it, and checks nothing against it")
    return found


def test_every_route_is_in_the_description_with_its_scopes(description: Description) -> None:
    """The box answers nothing that DigitalOcean doesn't, and asks tokens for the same scopes.

    fact: do-delete-scope-is-the-teams
    """
    documented = json.loads(FILE.read_text())["paths"]
    paths = {_shape(path): operations for path, operations in documented.items()}
    for route in ROUTES:
        operation = paths[_shape(route.template)][route.method.lower()]
        # `api:` scopes are those of old tokens that may do everything.
        scopes = {
            scope for way in operation["security"] for scope in way["bearer_auth"] if not scope.startswith("api:")
        }
        assert set(route.scopes) == scopes, (route.method, route.template)


def test_an_answer_that_is_not_digitaloceans_is_noticed(description: Description) -> None:
    """A droplet that lacks its status, for example."""
    call = parse_call("GET", "/v2/droplets/1", {}, b"", "https://box")
    complaint = description.complaint_about_answer(call, Answer(body={"droplet": {"id": 1, "name": "a"}}))
    assert complaint
    assert "status" in complaint
    refused = Answer(status=404, body={"id": "not_found", "message": "gone"})
    assert description.complaint_about_answer(call, refused) is None


def test_a_request_that_is_not_in_the_description_is_refused(description: Description, do_api: DigitalOceanBox) -> None:
    """With 422 and what is wrong with it, like what the box refuses by itself."""
    client = do_api.client()
    assert status_of(client.droplets.list, per_page=1000) == 422
    assert status_of(client.firewalls.create, {"name": "f", "inbound_rules": [{"protocol": "carrier pigeon"}]}) == 422
    assert not do_api.broken


def test_the_box_has_its_limits_without_the_description(tmp_path: Path) -> None:
    """What isn't in the description is refused by the box itself; the rest works as ever."""
    with start_box(tmp_path, checked=False) as do:
        assert status_of(do.client().droplets.create, order(tags=["no spaces"])) == 422
        assert status_of(do.client().droplets.create, order(user_data="x" * 65537)) == 422
        number = create(do)
        assert gpus(do) == [number]
        assert not do.broken


def _shape(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
