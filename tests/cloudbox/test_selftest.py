"""`kedge selftest` in the boxes of the clouds: one whole life each, on a machine that boots; nothing bills after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.box import Box
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.leftovers import leftovers
from tests.laptop import Laptop

SHORT = {"KEDGE_SELFTEST_SECONDS": "12", "KEDGE_SSH_FROM": "127.0.0.1/32"}


def read_checks(laptop: Laptop) -> dict[str, dict[str, Any]]:
    """Read the report, and return its checks by name."""
    report = json.loads((laptop.home / "kedge-selftest.json").read_text())
    return {line["check"]: line for line in report["checks"]}


def test_a_selftest_passes_at_aws(box: Box, laptop: Laptop) -> None:
    """Code and data through the bucket, a schedule that is read back; nothing is left, and the report is harmless."""
    set_up(box)
    laptop.extra_env |= {**box.env, **SHORT}
    laptop.kedge("selftest", "--provider", "aws", "--yes")
    checks = read_checks(laptop)
    assert "a schedule at AWS terminates it" in checks["deadline guard"]["found"]
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert box.billing() == []
    assert leftovers(box) == []
    text = (laptop.home / "kedge-selftest.json").read_text()
    assert "123456789012" not in text
    assert box.env["AWS_SECRET_ACCESS_KEY"] not in text


@pytest.mark.parametrize("provider", ["do", "amd"])
def test_a_selftest_passes_at_digitalocean_and_amd(provider: str, do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """The same at the other API, at both of its addresses."""
    prefix, token = {
        "do": ("KEDGE_DIGITALOCEAN", "DIGITALOCEAN_ACCESS_TOKEN"),
        "amd": ("KEDGE_AMD", "AMD_DEVCLOUD_TOKEN"),
    }[provider]
    own = {token: do_box.token, f"{prefix}_ENDPOINT": do_box.endpoint}
    delete = {f"{prefix}_DELETE_TOKEN": do_box.make_token("droplet:read", "droplet:delete")}
    laptop.extra_env |= {**do_box.environ, **own, **delete, **SHORT}
    laptop.kedge("selftest", "--provider", provider, "--yes")
    checks = read_checks(laptop)
    assert "it deletes itself" in checks["deadline guard"]["found"]
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert do_box.meter.billing() == []
    assert do_box.token not in (laptop.home / "kedge-selftest.json").read_text()


def test_a_selftest_that_could_cost_more_than_its_budget_rents_nothing(do_api: DigitalOceanBox, laptop: Laptop) -> None:
    """Exit code 4, as a launch; a dollar is the cap where nobody says another."""
    laptop.extra_env |= {**do_api.environ, **SHORT}
    laptop.kedge("selftest", "--provider", "do", "--gpu", "h100:8", "--yes", code=4)
    assert do_api.droplets() == []
    assert list(read_checks(laptop)) == ["permissions", "offer"]


def test_a_selftest_where_nothing_is_sold_says_so(do_api: DigitalOceanBox, laptop: Laptop) -> None:
    """Exit code 3, as a launch; the checks of the account were made all the same."""
    laptop.extra_env |= {**do_api.environ, **SHORT}
    do_api.sell_out("gpu-mi300x1-192gb")
    laptop.kedge("selftest", "--provider", "do", "--gpu", "mi300x", "--budget", "9", "--yes", code=3)
    assert list(read_checks(laptop)) == ["permissions", "offer"]
    assert do_api.droplets() == []


def test_an_account_without_permissions_stops_a_selftest_before_anything_is_made(
    do_api: DigitalOceanBox, laptop: Laptop
) -> None:
    """The first check fails, and names the scope."""
    token = do_api.make_token("account:read", "sizes:read", "regions:read", "droplet:read")
    laptop.extra_env |= {**do_api.environ, **SHORT, "DIGITALOCEAN_ACCESS_TOKEN": token}
    laptop.kedge("selftest", "--provider", "do", "--yes", code=1)
    assert "droplet:create" in read_checks(laptop)["permissions"]["found"]
    assert do_api.droplets() == []
