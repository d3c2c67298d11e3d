"""`kedge doctor --provider do` and `amd` in the box: an account that is ready, and its possible problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, look_at_guard
from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from orchestrator.core.checkup import Verdict
from orchestrator.core.job import Resources
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.in_cloudbox.checkups import DO_SCOPES, H100, MI300X, T4, check_up, do_environ, verdicts
from tests.support.fakes import MACHINE


def test_an_account_at_the_amd_developer_cloud_that_is_ready_passes(amd_api: DigitalOceanBox, tmp_path: Path) -> None:
    """The same API at another address, with tokens and sizes of its own."""
    own = {
        "AMD_DEVCLOUD_TOKEN": amd_api.make_token(*DO_SCOPES),
        "KEDGE_AMD_DELETE_TOKEN": amd_api.make_token(*SCOPES),
        "KEDGE_AMD_ENDPOINT": amd_api.endpoint,
        "KEDGE_DIGITALOCEAN_CA": str(amd_api.ca_file),
    }
    checks = check_up(tmp_path, "amd", own, MI300X)
    assert verdicts(checks) == {"bucket": "warning", "quota": "warning"}
    assert "gpu-mi300x1-192gb-devcloud" in checks["offers"].found
    assert check_up(tmp_path, "amd", own, Resources())["offers"] == checks["offers"]
    del own["AMD_DEVCLOUD_TOKEN"]
    assert "AMD_DEVCLOUD_TOKEN" in check_up(tmp_path, "amd", own, MI300X)["credentials"].fix


def test_a_digitalocean_account_that_is_ready_passes(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """What the API doesn't show, or works less well, is a warning; nothing is created or changed.

    fact: do-gpu-limit-untold.
    """
    checks = check_up(tmp_path, "do", do_environ(do_api), H100)
    assert verdicts(checks) == {"bucket": "warning", "quota": "warning"}
    assert "the API doesn't tell" in checks["quota"].found
    assert all(check.fix for check in checks.values() if check.verdict is not Verdict.OK)
    assert not do_api.cloud.account.droplets
    assert not do_api.cloud.account.firewalls


@pytest.mark.parametrize(
    "scope", ["droplet:create", "droplet:delete", "ssh_key:create", "firewall:create", "tag:delete"]
)
def test_a_scope_that_a_token_lacks_is_named(scope: str, do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """Calls that change nothing find it. fact: do-scope-before-content."""
    failed = check_up(tmp_path, "do", do_environ(do_api, without=scope), H100)["permissions"]
    assert (failed.verdict, failed.found) == (Verdict.FAILED, f"the token lacks {scope}")
    assert "docs/digitalocean.md" in failed.fix


def test_other_problems_of_a_digitalocean_account_are_named(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """An unknown token, a delete token without its scope or missing, a bucket, an offer, VPCs, limits."""
    good = do_environ(do_api)

    def line(name: str, **environ: str) -> tuple[str, str]:
        check = check_up(tmp_path, "do", {**good, **environ}, H100)[name]
        return str(check.verdict), check.fix

    verdict, fix = line("credentials", DIGITALOCEAN_ACCESS_TOKEN="dop_v1_nobody")
    assert verdict == "failed"
    assert "docs/digitalocean.md" in fix
    verdict, fix = line("guards", KEDGE_DIGITALOCEAN_DELETE_TOKEN="")
    assert verdict == "warning"
    assert fix.startswith("set KEDGE_DIGITALOCEAN_DELETE_TOKEN")
    token = do_api.make_token(*(scope for scope in SCOPES if scope != "droplet:delete"))
    verdict, fix = line("guards", KEDGE_DIGITALOCEAN_DELETE_TOKEN=token)
    assert verdict == "failed"
    assert "droplet:delete" in fix
    spaces = {"KEDGE_SPACES_BUCKET": "b", "KEDGE_SPACES_ENDPOINT": "http://127.0.0.1:9"}
    assert "KEDGE_SPACES_BUCKET" in line("bucket", **spaces, SPACES_ACCESS_KEY_ID="k", SPACES_SECRET_ACCESS_KEY="s")[1]
    assert check_up(tmp_path, "do", good, replace(T4, regions=()))["offers"].verdict is Verdict.FAILED
    do_api.faults.fail_next("GET", "/v2/vpcs", status=422, times=None)
    verdict, fix = line("network")
    assert verdict == "failed"
    assert "again in a minute" in fix
    do_api.settings.droplet_limit = 1
    assert check_up(tmp_path, "do", good, H100)["quota"].verdict is Verdict.WARNING
    two = check_up(tmp_path, "do", good, replace(H100, num_nodes=2))["quota"]
    assert (two.verdict, two.found) == (Verdict.FAILED, "0 droplets of 1: 2 others don't fit")
    do_api.settings.droplet_limit = 0
    assert line("quota") == ("failed", "ask for more in the control panel, under Settings, Resource Limits")
    do_api.settings.account_status = "locked"
    assert line("credentials") == ("failed", "see the control panel, or ask support")


def test_the_self_test_reports_a_droplet_that_does_not_delete_itself(tmp_path: Path) -> None:
    """Its own timer powers it off, which doesn't end its bill."""
    token = {"KEDGE_DIGITALOCEAN_DELETE_TOKEN": "dop_v1_0"}
    for environ, expected in (({}, Verdict.WARNING), (token, Verdict.OK)):
        context = Context(
            state_dir=tmp_path, runtime_dir=tmp_path, clock=SystemClock(), key_file=tmp_path / "key", environ=environ
        )
        verdict, found, fix = look_at_guard("do", context, MACHINE)
        assert verdict is expected
        assert "kedge reap" in found
        assert bool(fix) == (expected is Verdict.WARNING)


def test_a_token_that_may_not_read_networks_can_launch(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """The API makes a default VPC if there is none: nothing is wrong."""
    do_api.faults.fail_next("GET", "/v2/vpcs", status=403, times=None)
    assert check_up(tmp_path, "do", do_environ(do_api), H100)["network"].verdict is Verdict.OK
