"""A run with several droplets on DigitalOcean in the box: they boot, train and end together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.in_cloudbox.gangs import JOB, make_project, read_losses, train_undisturbed
from tests.support.laptop import Laptop

DROPLETS = "{infra: do, instance_type: s-2vcpu-4gb}"


@pytest.fixture
def laptop(do_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a DigitalOcean account, where nothing may bill when the test ends."""
    laptop.extra_env |= {**do_box.environ, "KEDGE_PROVIDER": "do", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    make_project(laptop.home)
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


def test_four_droplets_train_in_the_next_region_if_one_fails_in_the_first(
    do_box: DigitalOceanBox, laptop: Laptop
) -> None:
    """Without a bucket: all get agent, code and data over SSH; torchrun finds the others by its variables alone.

    Nothing is left in the first region. The losses are those of four processes on one computer, to the last bit.
    """
    do_box.faults.give_up_next()
    laptop.write_job(JOB.format(nodes=4, steps=6, holds="", resources=DROPLETS))
    said = laptop.kedge("launch", "--yes")
    assert "do/ams3 s-2vcpu-4gb: do failed to create s-2vcpu-4gb in ams3" in said
    assert all(f"[kedge] the network of node {rank} (10." in said for rank in (1, 2, 3)), "they have met"
    (results,) = (laptop.home / "kedge-results").glob("clouds-*")
    assert "4 ranks begin" in (results / "run.log").read_text()
    expected = train_undisturbed(laptop.home.parent / "undisturbed", ranks=4, steps=6)
    assert read_losses(results / "output" / "results") == list(expected.items())
    bills = do_box.meter.bills()
    assert len(bills) > 4
    assert all(bill.until is not None for bill in bills)
    assert do_box.cloud.account.firewalls == {}
    assert do_box.droplets() == []
