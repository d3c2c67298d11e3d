"""An instance's life: seen late, active late, ended twice, and what of it bills."""

from __future__ import annotations

from decimal import Decimal
from urllib.parse import quote

import pytest

from tests.cloudbox.lambdacloud.account import Settings
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.orders import code_of, launch, listed, terminate, try_launch

UNKNOWN = (404, "global/object-does-not-exist")


def get(lam: LambdaBox, instance: str) -> dict[str, object] | tuple[int, str]:
    reply = lam.client().call("GET", f"/api/v1/instances/{instance}")
    return dict(reply.json["data"]) if reply.status == 200 else code_of(reply)


def test_a_new_instance_is_seen_late_and_bills_at_once(lambda_api: LambdaBox) -> None:
    """By its id, in listings, and by its termination: 404 says nothing while it is young. fact: lambda-listed-late."""
    lambda_api.settings.not_found_seconds, lambda_api.settings.unlisted_seconds = 60, 5
    made = launch(lambda_api)
    assert listed(lambda_api) == {}
    assert get(lambda_api, made) == code_of(terminate(lambda_api, made)) == UNKNOWN
    assert [bill.id for bill in lambda_api.meter.billing()] == [made]
    lambda_api.advance(6)
    assert list(listed(lambda_api)) == [made]
    assert get(lambda_api, made) == UNKNOWN
    lambda_api.advance(60)
    assert terminate(lambda_api, made).status == 200


def test_it_has_an_address_before_it_is_active(lambda_api: LambdaBox) -> None:
    """Which comes minutes later. fact: lambda-address-while-booting."""
    usual = Settings()
    lambda_api.settings.address_seconds, lambda_api.settings.activation_seconds = (
        usual.address_seconds,
        usual.activation_seconds,
    )
    made = launch(lambda_api)
    assert (listed(lambda_api)[made]["status"], "ip" in listed(lambda_api)[made]) == ("booting", False)
    lambda_api.advance(31)
    assert (listed(lambda_api)[made]["status"], "ip" in listed(lambda_api)[made]) == ("booting", True)
    lambda_api.advance(120)
    assert listed(lambda_api)[made]["status"] == "active"


def test_optional_fields_may_be_missing(lambda_api: LambdaBox) -> None:
    """Of an active instance too. fact: lambda-optional-fields."""
    names = ("ip", "private_ip", "name", "tags", "file_system_mounts", "hostname")
    lambda_api.settings.left_out = names
    made = launch(lambda_api)
    shown = listed(lambda_api)[made]
    assert shown["status"] == "active"
    assert not set(names) & set(shown)


def test_listings_hold_secrets_and_unknown_fields(lambda_api: LambdaBox) -> None:
    """A token that is a shell on the machine. fact: lambda-listing-has-secrets; fact: lambda-unknown-fields."""
    made = launch(lambda_api)
    shown = listed(lambda_api)[made]
    assert shown["jupyter_token"] in lambda_api.secrets()
    assert shown["jupyter_token"] in shown["jupyter_url"]
    assert {"workspace_id", "is_reserved"} <= set(shown)


def test_other_peoples_instances_are_in_the_listing(lambda_api: LambdaBox) -> None:
    """All of them, whatever they are called, with our names among theirs; they cost us nothing.

    fact: lambda-no-filters
    """
    lambda_api.crowd(300)
    made = launch(lambda_api, name="kedge-7", tags=[{"key": "kedge-run", "value": "Run"}])
    found = listed(lambda_api)
    assert len(found) == 301
    assert len([one for one in found.values() if one["name"] == "kedge-7"]) == 2
    assert [bill.id for bill in lambda_api.meter.billing()] == [made]
    other = next(one for one in found if one != made)
    terminate(lambda_api, other)
    assert len(lambda_api.foreign()) == 299


def test_a_listing_may_come_in_pages(lambda_api: LambdaBox) -> None:
    """Which the description doesn't have: who doesn't follow them misses instances, or sends a token as it is."""
    lambda_api.settings.page_size = 2
    lambda_api.crowd(5)
    found, query = [], ""
    for count in (2, 2, 1):
        page = lambda_api.client().call("GET", f"/api/v1/instances{query}").json
        assert len(page["data"]) == count
        found += [one["id"] for one in page["data"]]
        query = f"?page_token={quote(page.get('page_token', ''), safe='')}"
    assert query == "?page_token="
    assert len(set(found)) == 5
    assert lambda_api.client().call("GET", "/api/v1/instances?page_token=a+b/c=&d%202").status == 400


def test_names_and_tags_may_come_back_in_another_case(lambda_api: LambdaBox) -> None:
    """Nobody says that they don't."""
    lambda_api.settings.folds_case = True
    made = launch(lambda_api, name="Kedge-A", tags=[{"key": "kedge-run", "value": "Run-1"}])
    shown = listed(lambda_api)[made]
    assert (shown["name"], shown["tags"]) == ("kedge-a", [{"key": "kedge-run", "value": "run-1"}])


def test_a_name_can_be_changed_and_a_tag_can_not(lambda_api: LambdaBox) -> None:
    """So only tags tell whose an instance is. fact: lambda-tags-at-launch-only."""
    made = launch(lambda_api, name="mine")
    path = f"/api/v1/instances/{made}"
    assert lambda_api.client().call("POST", path, {"name": "yours"}).json["data"]["name"] == "yours"
    assert code_of(lambda_api.client().call("POST", path, {"tags": []})) == (400, "global/invalid-parameters")


def test_an_end_takes_its_time_and_costs_nothing(lambda_api: LambdaBox) -> None:
    """Terminating, then terminated and listed for a while, then unknown. fact: lambda-terminate-ends-billing."""
    lambda_api.settings.ending_seconds, lambda_api.settings.shown_seconds = 90, 60
    made = launch(lambda_api)
    (ended,) = terminate(lambda_api, made).json["data"]["terminated_instances"]
    assert (ended["id"], ended["status"]) == (made, "terminating")
    assert not lambda_api.meter.billing()
    assert listed(lambda_api)[made]["status"] == "terminating"
    lambda_api.advance(91)
    assert listed(lambda_api)[made]["status"] == "terminated"
    lambda_api.advance(60)
    assert listed(lambda_api) == {}
    assert get(lambda_api, made) == UNKNOWN


def test_an_ended_instance_may_vanish_at_once(lambda_api: LambdaBox) -> None:
    """Nobody says for how long it is listed."""
    made = launch(lambda_api)
    assert terminate(lambda_api, made).status == 200
    assert listed(lambda_api) == {}
    assert code_of(terminate(lambda_api, made)) == UNKNOWN


@pytest.mark.parametrize("status", [400, 500])
def test_a_second_termination_fails_without_a_reason(lambda_api: LambdaBox, status: int) -> None:
    """With a code that the description lacks, though all is well. fact: lambda-second-terminate."""
    lambda_api.settings.ending_seconds = 90
    lambda_api.settings.second_termination = 500 if status == 500 else 400
    made = launch(lambda_api)
    terminate(lambda_api, made)
    assert code_of(terminate(lambda_api, made)) == (status, "global/unknown")
    lambda_api.settings.second_termination = 200
    assert terminate(lambda_api, made).status == 200


def test_an_unknown_id_spoils_a_termination_of_others(lambda_api: LambdaBox) -> None:
    """Nobody says whether the others end: in the box they don't. fact: lambda-terminate."""
    made = launch(lambda_api)
    assert code_of(terminate(lambda_api, made, "0" * 32)) == UNKNOWN
    assert [one.id for one in lambda_api.instances()] == [made]


@pytest.mark.parametrize(("status", "code"), [(400, "global/invalid-parameters"), (409, "global/conflict")])
def test_a_new_instance_can_not_be_terminated(lambda_api: LambdaBox, status: int, code: str) -> None:
    """It says so itself, and is refused in a way that nobody has recorded. fact: lambda-not-endable-at-first."""
    lambda_api.settings.endable_seconds = 8
    lambda_api.settings.too_early = 400 if status == 400 else 409
    made = launch(lambda_api)
    said = listed(lambda_api)[made]["actions"]["terminate"]
    assert said == {"available": False, "reason_code": "vm-has-not-launched"}
    assert code_of(terminate(lambda_api, made)) == (status, code)
    lambda_api.advance(8)
    assert terminate(lambda_api, made).status == 200


def test_a_termination_is_accepted_and_not_carried_out(lambda_api: LambdaBox) -> None:
    """Answered with the instance, or with 200 and without it: only another look tells.

    fact: lambda-accepted-is-not-done
    """
    made = launch(lambda_api)
    lambda_api.faults.ignore_terminations()
    lambda_api.faults.ignore_terminations(is_listed=False)
    assert [one["status"] for one in terminate(lambda_api, made).json["data"]["terminated_instances"]] == [
        "terminating"
    ]
    assert terminate(lambda_api, made).json["data"]["terminated_instances"] == []
    assert listed(lambda_api)[made]["status"] == "active"
    assert lambda_api.meter.billing()
    terminate(lambda_api, made)
    assert not lambda_api.instances()


def test_an_accepted_launch_ends_by_itself(lambda_api: LambdaBox) -> None:
    """It is terminated before it was active, and bills until then."""
    lambda_api.settings.shown_seconds = 60
    lambda_api.settings.activation_seconds = 150
    lambda_api.faults.change_launched("terminated", seconds=30)
    made = launch(lambda_api)
    assert lambda_api.meter.billing()
    lambda_api.advance(31)
    assert listed(lambda_api)[made]["status"] == "terminated"
    assert not lambda_api.meter.billing()


def test_an_instance_stays_booting(lambda_api: LambdaBox) -> None:
    """For hours, at its full price: nobody but its user ends it."""
    lambda_api.settings.activation_seconds = 150
    lambda_api.faults.keep_booting()
    made = launch(lambda_api)
    lambda_api.advance(7200)
    assert listed(lambda_api)[made]["status"] == "booting"
    assert lambda_api.meter.usd() > Decimal("8.5")


@pytest.mark.parametrize("status", ["unhealthy", "preempted"])
def test_an_instance_that_is_struck_bills_on(lambda_api: LambdaBox, status: str) -> None:
    """Nothing says that it doesn't. fact: lambda-alert-bills."""
    made = launch(lambda_api)
    lambda_api.strike(lambda_api.instances()[0], "unhealthy" if status == "unhealthy" else "preempted")
    assert listed(lambda_api)[made]["status"] == status
    assert lambda_api.meter.billing()


def test_a_minute_that_has_begun_is_paid_whole(lambda_api: LambdaBox) -> None:
    """From the launch on. fact: lambda-billed-by-the-minute."""
    made = launch(lambda_api)
    lambda_api.advance(61)
    terminate(lambda_api, made)
    lambda_api.advance(3600)
    assert lambda_api.meter.usd() == Decimal("4.29") * 2 / 60


def test_instances_restart_all_or_none(lambda_api: LambdaBox) -> None:
    """A booting one is a conflict."""
    first = launch(lambda_api)
    lambda_api.settings.activation_seconds = 150
    second = try_launch(lambda_api).json["data"]["instance_ids"][0]
    path = "/api/v1/instance-operations/restart"
    assert code_of(lambda_api.client().call("POST", path, {"instance_ids": [first, second]})) == (
        409,
        "global/conflict",
    )
    reply = lambda_api.client().call("POST", path, {"instance_ids": [first]})
    assert [one["id"] for one in reply.json["data"]["restarted_instances"]] == [first]
    assert [one.boots for one in lambda_api.instances()] == [2, 1]
