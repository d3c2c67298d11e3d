"""The meter, which says what a real account would have paid."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.orders import create, create_volume

_PRICE = Decimal("4.41")


def _about(usd: Decimal, expected: Decimal) -> bool:
    # Tests take some real time: a second of the dearest thing here is a fraction of a cent.
    return abs(usd - expected) < Decimal("0.005")


@pytest.mark.parametrize(
    ("size", "image", "usd"),
    [("gpu-h100x1-80gb", "gpu-h100x1-base", _PRICE / 12), ("s-2vcpu-4gb", "ubuntu-24-04-x64", Decimal("0.03571") / 60)],
)
def test_a_droplet_that_lived_for_a_moment_costs_its_minimum(
    do_api: DigitalOceanBox, size: str, image: str, usd: Decimal
) -> None:
    """Five minutes with GPUs, else one. fact: do-gpu-minimum, fact: do-plain-minimum."""
    do_api.client().droplets.destroy(create(do_api, size=size, image=image))
    (bill,) = do_api.meter.bills()
    assert do_api.meter.usd() == bill.usd(0) == usd
    assert not do_api.meter.billing()


def test_a_droplet_bills_by_the_second_until_it_is_gone(do_api: DigitalOceanBox) -> None:
    """Not a second longer; the account's balance says the same."""
    number = create(do_api)
    do_api.advance(90 * 60)
    do_api.client().droplets.destroy(number)
    do_api.advance(3600)
    assert _about(do_api.meter.usd(), _PRICE * 3 / 2)
    assert do_api.client().balance.get()["month_to_date_usage"] == f"{do_api.meter.usd():.2f}"


def test_a_droplet_that_is_powered_off_goes_on_billing(do_api: DigitalOceanBox) -> None:
    """At its full price: only a deletion ends it."""
    number = create(do_api)
    do_api.client().droplet_actions.post(number, {"type": "power_off"})
    do_api.advance(3600)
    assert _about(do_api.meter.usd(), _PRICE)
    assert [bill.kind for bill in do_api.meter.billing()] == ["droplet"]


def test_what_is_left_behind_bills(do_api: DigitalOceanBox) -> None:
    """Volumes, their snapshots and reserved addresses, each until it is deleted."""
    client, volume = do_api.client(), create_volume(do_api, size_gigabytes=100)
    snapshot = client.volume_snapshots.create(volume, {"name": "kept"})["snapshot"]["id"]
    ip = client.reserved_ips.create({"region": "tor1"})["reserved_ip"]["ip"]
    do_api.advance(730 * 3600)
    bills = {bill.kind: bill.usd(do_api.cloud.clock.now()) for bill in do_api.meter.billing()}
    assert {kind: round(usd, 2) for kind, usd in bills.items()} == {
        "volume": Decimal("10.00"),
        "snapshot": Decimal("0.60"),
        "reserved_ip": Decimal("5.00"),
    }
    client.volume_snapshots.delete_by_id(snapshot)
    client.volumes.delete(volume)
    client.reserved_ips.delete(ip)
    assert not do_api.meter.billing()


def test_a_resized_volume_bills_at_its_new_size(do_api: DigitalOceanBox) -> None:
    """From then on."""
    volume = create_volume(do_api, size_gigabytes=10)
    do_api.advance(73 * 3600)
    do_api.client().volume_actions.post_by_id(volume, {"type": "resize", "size_gigabytes": 20})
    do_api.advance(73 * 3600)
    assert round(do_api.meter.usd(), 2) == Decimal("0.30")


def test_prices_can_be_set(do_api: DigitalOceanBox) -> None:
    """For the droplets that are created from then on."""
    create(do_api)
    do_api.set_price("gpu-h100x1-80gb", "3")
    create(do_api)
    assert [bill.usd_per_hour for bill in do_api.meter.bills()] == [_PRICE, 3]
