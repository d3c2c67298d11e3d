"""Launches at Lambda: one machine for one order, whatever Lambda answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.machine import MachineState
from tests.adapters.lambdacloud.world import HOME, LAUNCH, M1, RUN, LambdaWorld
from tests.cloudbox.lambdacloud.box import LambdaBox

NESTED = '{"x":' + "[" * 100_000
LOST: dict[str, Callable[[LambdaBox], object]] = {
    "dropped": lambda box: box.faults.drop_next(*LAUNCH),
    "500": lambda box: box.faults.fail_next(*LAUNCH, status=500, after_effect=True),
    "502": lambda box: box.faults.fail_html(*LAUNCH),
    "unknown": lambda box: box.faults.fail_next(*LAUNCH, status=400, code="global/unknown", after_effect=True),
    "upstream": lambda box: box.faults.fail_next(
        *LAUNCH, status=400, code="provider/internal-unavailable", after_effect=True
    ),
    "conflict": lambda box: box.faults.fail_next(*LAUNCH, status=409, code="global/internal-error", after_effect=True),
    "empty": lambda box: box.faults.empty_answer(*LAUNCH),
    "nested": lambda box: box.faults.fail_next(*LAUNCH, status=200, text=NESTED, after_effect=True),
    "nested refusal": lambda box: box.faults.fail_next(*LAUNCH, status=500, text=NESTED, after_effect=True),
    "redirected": lambda box: box.faults.redirect(*LAUNCH, "https://cloud.lambdalabs.com/api/v1"),
}
"""Answers that don't tell whether the launch was carried out."""


@pytest.mark.parametrize("answer", sorted(set(LOST) - {"502", "redirected"}))
def test_a_launch_whose_answer_is_lost_is_found_by_its_tags_and_sent_once(lam: LambdaWorld, answer: str) -> None:
    """fact: lambda-no-idempotency: a second launch would make another machine."""
    lam.lam.settings.unlisted_seconds, lam.lam.settings.key_seconds = 60, 0
    LOST[answer](lam.lam)
    machine = lam.provider().create(lam.order())
    (instance,) = lam.lam.instances()
    assert (machine.provider_id, lam.launches()) == (instance.id, 1)


@pytest.mark.parametrize("answer", ["502", "redirected"])
def test_a_launch_that_never_arrived_counts_as_a_machine_until_it_would_be_listed(
    lam: LambdaWorld, answer: str
) -> None:
    """Until then nothing else is made for the run. After a quarter of an hour the machine is launched again."""
    LOST[answer](lam.lam)
    with pytest.raises(StillBillingError, match="may have been created"):
        lam.provider().create(lam.order())
    (machine,) = lam.provider().machines()
    assert machine.state is MachineState.UNKNOWN
    with pytest.raises(StillBillingError):
        lam.provider().create(lam.order(2, id=f"{RUN}-m2"))
    lam.clock.sleep(timedelta(minutes=16))
    lam.provider().create(lam.order())
    assert len(lam.lam.instances()) == 1


def test_a_rate_limited_launch_is_sent_again(lam: LambdaWorld) -> None:
    """Refusals as plain text, as a 403, or with a date: no machine was made. fact: lambda-429-did-nothing."""
    for refusal in ("cloudflare-429", "cloudflare-403", "json"):
        lam.lam.settings.rate_refusal = refusal
        lam.lam.settings.retry_after = "date"
        lam.lam.client().call("GET", "/api/v1/regions")
        lam.provider().machines()
    lam.lam.settings.key_seconds = 0
    lam.lam.faults.fail_next(*LAUNCH, status=429, text="error code: 1015\n", headers={"Content-Type": "text/plain"})
    lam.provider().create(lam.order())
    assert len(lam.lam.instances()) == 1
    assert [call.status for call in lam.lam.calls.find(*LAUNCH)] == [429, 200]


def test_the_rate_limits_of_the_account_are_kept(lam: LambdaWorld) -> None:
    """One request a second and one launch in 12 s: no request is refused. fact: lambda-rate-limits."""
    provider = lam.provider()
    for number in (1, 2, 3):
        provider.create(lam.order(number))
    assert not [call for call in lam.lam.calls if call.status in (403, 429)]


def test_a_listed_offer_that_is_refused_is_no_capacity(lam: LambdaWorld) -> None:
    """So the next offer is taken. fact: lambda-capacity-is-advisory."""
    order = lam.order()
    lam.lam.sell_out(order.instance_type, order.region)
    with pytest.raises(NoCapacityError, match="us-east-1 now") as caught:
        lam.provider().create(order)
    assert caught.value.covers(order.offer)
    assert not caught.value.covers(replace(order.offer, region="us-south-1"))
    assert lam.provider().machines() == []


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda box: setattr(box.settings, "instance_limit", 0), "no room"),
        (lambda box: setattr(box.settings, "refuses_account", "global/account-inactive"), "inactive"),
        (lambda box: box.faults.block(*LAUNCH, times=None), "error code: 1020"),
        (lambda box: box.revoke(), "invalid-api-key"),
    ],
)
def test_a_refusal_says_what_lambda_says_and_what_to_do(
    lam: LambdaWorld, prepare: Callable[[LambdaBox], object], message: str
) -> None:
    """Neither a machine nor a record is left."""
    prepare(lam.lam)
    with pytest.raises(KedgeError) as caught:
        lam.provider().create(lam.order())
    assert message in f"{caught.value.what} {caught.value.why}"
    assert caught.value.fix
    assert lam.lam.instances() == []


def test_an_ssh_key_that_was_removed_in_the_console_is_added_again(lam: LambdaWorld) -> None:
    """A launch that names a removed key is refused. A new key is accepted some seconds after it is listed."""
    lam.provider().create(lam.order())
    lam.lam.cloud.account.keys.clear()
    lam.provider().destroy(M1)
    lam.provider().create(lam.order(2, run_id="other-1121-ab2c", id="other-1121-ab2c-m1"))
    assert len(lam.lam.cloud.account.keys) == 1


def test_the_image_fits_the_region_and_the_architecture(lam: LambdaWorld) -> None:
    """Defaults differ between regions: fact: lambda-default-images-differ. An order may name another image."""
    lam.provider().create(lam.order())
    lam.provider().create(lam.order(2, image_id="lambda-stack-22-04"))
    images = [(one.image.family, one.image.region, one.image.architecture) for one in lam.lam.instances()]
    assert images == [(f"lambda-stack-{name}", "us-east-1", "x86_64") for name in ("24-04", "22-04")]
    with pytest.raises(BadRequestError, match="no image debian"):
        lam.provider().create(lam.order(3, image_id="debian"))


def test_the_newest_image_of_a_family_is_launched(lam: LambdaWorld) -> None:
    """A family may have several images in a region, listed in any order."""
    images = lam.lam.cloud.account.images
    (usual,) = [
        image
        for image in images
        if (image.family, image.region, image.architecture) == ("lambda-stack-24-04", "us-east-1", "x86_64")
    ]
    dates = {"older": "2025-12-01T00:00:00+00:00", "newest": "2026-10-01T00:00:00+00:00"}
    older, newest = (replace(usual, id=f"{name:x>32}", created_time=date) for name, date in dates.items())
    images[:] = [newest, *images, older]
    lam.provider().create(lam.order())
    assert [one.image.id for one in lam.lam.instances()] == [newest.id]


def test_only_the_network_of_its_order_reaches_a_machine(lam: LambdaWorld) -> None:
    """fact: lambda-default-firewall: Lambda lets in everybody, so the machine closes its ports.

    Only it can change that later.
    """
    provider = lam.provider()
    provider.create(lam.order())
    (instance,) = lam.lam.instances()
    assert re.search(rf"network={re.escape(HOME)}\n.*nft -f -", instance.user_data, re.DOTALL)
    assert not provider.reopen(M1, HOME)
    with pytest.raises(BadRequestError, match="can't be opened") as caught:
        provider.reopen(M1, "198.51.100.0/24")
    assert f"`kedge teardown {RUN}`" in caught.value.fix


def test_no_secret_of_the_api_is_stored(lam: LambdaWorld) -> None:
    """Neither keys nor the token of a machine's notebook. fact: lambda-listing-has-secrets."""
    lam.lam.settings.activation_seconds = 0
    lam.provider().create(lam.order())
    lam.provider().sweep()
    assert len(secrets := lam.lam.secrets()) > 1
    written = "".join(path.read_text() for path in lam.folder.rglob("*") if path.is_file())
    assert written
    assert not [secret for secret in secrets if secret in written]


def test_another_laptop_sees_and_ends_a_machine_and_makes_no_second_one(lam: LambdaWorld) -> None:
    """It knows the machine by its tags alone, and has no address for it, because it doesn't know the host key."""
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=5))
    other = lam.other_laptop()
    (seen,) = other.provider().machines()
    assert (seen.id, seen.address, seen.usd_per_hour) == (M1, None, lam.order().usd_per_hour)
    other.provider().create(lam.order())
    assert len(lam.lam.instances()) == 1
    other.provider().destroy(M1)
    assert lam.lam.instances() == []


@pytest.mark.parametrize("gone", [("tags",), ("name", "private_ip", "hostname", "tags")])
def test_a_machine_whose_tags_are_not_shown_is_known_by_its_id(lam: LambdaWorld, gone: tuple[str, ...]) -> None:
    """The laptop's record says when it was made: Lambda doesn't.

    fact: lambda-optional-fields; fact: lambda-no-times.
    """
    made = lam.provider().create(lam.order())
    lam.lam.settings.left_out = gone
    (seen,) = lam.provider().machines()
    assert seen.id == M1
    assert abs(seen.created_at - made.created_at) < timedelta(seconds=30)
    assert seen.deadline_at - seen.created_at == timedelta(seconds=lam.order().lifetime_seconds)


def test_the_credentials_of_another_account_do_not_make_a_machine_seem_gone(lam: LambdaWorld) -> None:
    """Neither the API key nor the laptop's SSH key belongs to that account."""
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=20))
    with lam.other_account(), pytest.raises(BadRequestError, match="another Lambda account"):
        lam.provider().describe(M1)
    assert lam.provider().describe(M1)
