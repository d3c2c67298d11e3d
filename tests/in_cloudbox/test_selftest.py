"""`kedge selftest` in the clouds' boxes: a whole life each, on a machine that boots; nothing bills afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.cloudbox.digitalocean.account.catalogue import AMD
from tests.cloudbox.digitalocean.box import DigitalOceanBox, start_box
from tests.support.laptop import Laptop

SHORT = {"KEDGE_SELFTEST_SECONDS": "12", "KEDGE_SSH_FROM": "127.0.0.1/32"}


def read_checks(laptop: Laptop) -> dict[str, dict[str, Any]]:
    """Read the report, and return its checks by name."""
    report = json.loads((laptop.home / "kedge-selftest.json").read_text())
    return {line["check"]: line for line in report["checks"]}


def test_a_selftest_passes_at_aws(box: Box, laptop: Laptop) -> None:
    """Code and data through the bucket, a schedule that is read back; nothing is left, the report has no secrets."""
    set_up(box)
    laptop.extra_env |= {**box.env, **SHORT}
    laptop.kedge("selftest", "--provider", "aws", "--yes")
    checks = read_checks(laptop)
    assert "a schedule at AWS terminates it" in checks["deadline guard"]["found"]
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert box.billing() == []
    assert leftovers(box) == []
    assert box.client("s3").list_objects_v2(Bucket="kedge-test").get("Contents", []) == []
    text = (laptop.home / "kedge-selftest.json").read_text()
    assert "123456789012" not in text
    assert box.env["AWS_SECRET_ACCESS_KEY"] not in text


def test_a_selftest_passes_at_digitalocean(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """Code and data over SSH, because there is no bucket."""
    delete = {"KEDGE_DIGITALOCEAN_DELETE_TOKEN": do_box.make_token(*SCOPES)}
    laptop.extra_env |= {**do_box.environ, **delete, **SHORT}
    laptop.kedge("selftest", "--provider", "do", "--yes")
    _assert_passed(do_box, laptop)


def test_a_selftest_passes_at_the_amd_developer_cloud(
    do_box_process: DigitalOceanBox, tmp_path: Path, laptop: Laptop
) -> None:
    """It chooses the cheapest machine, which has a GPU; within the default budget of a dollar."""
    with start_box(tmp_path, machines=True, catalogue=AMD) as amd:
        own = {
            "AMD_DEVCLOUD_TOKEN": amd.token,
            "KEDGE_AMD_ENDPOINT": amd.endpoint,
            "KEDGE_AMD_DELETE_TOKEN": amd.make_token(*SCOPES),
        }
        laptop.extra_env |= {**amd.environ, **own, **SHORT}
        laptop.kedge("selftest", "--provider", "amd", "--yes")
        _assert_passed(amd, laptop)
        assert not amd.broken


def _assert_passed(do: DigitalOceanBox, laptop: Laptop) -> None:
    checks = read_checks(laptop)
    assert "it deletes itself" in checks["deadline guard"]["found"]
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert do.meter.billing() == []
    assert do.token not in (laptop.home / "kedge-selftest.json").read_text()


def test_a_selftest_that_could_cost_more_than_its_budget_rents_nothing(do_api: DigitalOceanBox, laptop: Laptop) -> None:
    """Exit code 4, as for a launch; the default budget is a dollar."""
    laptop.extra_env |= {**do_api.environ, **SHORT}
    laptop.kedge("selftest", "--provider", "do", "--gpu", "h100:8", "--yes", code=4)
    assert do_api.droplets() == []
    assert list(read_checks(laptop)) == ["permissions", "offer"]


def test_a_selftest_reports_that_nothing_is_for_sale(do_api: DigitalOceanBox, laptop: Laptop) -> None:
    """Exit code 3, as for a launch: each place was tried; the account is swept anyway."""
    laptop.extra_env |= {**do_api.environ, **SHORT}
    do_api.sell_out("gpu-h100x1-80gb")
    laptop.kedge("selftest", "--provider", "do", "--gpu", "h100", "--budget", "9", "--yes", code=3)
    assert list(read_checks(laptop)) == ["permissions", "offer", "creation", "store", "sweep"]
    assert do_api.droplets() == []


def test_an_account_without_permissions_stops_a_selftest_before_anything_is_made(
    do_api: DigitalOceanBox, laptop: Laptop
) -> None:
    """The first check fails, and names the scope."""
    token = do_api.make_token("account:read", *(scope for scope in SCOPES if scope != "droplet:delete"))
    laptop.extra_env |= {**do_api.environ, **SHORT, "DIGITALOCEAN_ACCESS_TOKEN": token}
    laptop.kedge("selftest", "--provider", "do", "--yes", code=1)
    assert "droplet:create" in read_checks(laptop)["permissions"]["found"]
    assert do_api.droplets() == []
