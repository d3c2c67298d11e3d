"""`kedge doctor --provider ...` in the boxes: an account that is ready, and each line failing once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.probing import look_at_clock
from orchestrator.adapters.providers import Context, look_at_guard, open_probes
from orchestrator.adapters.providers.digitalocean.ending import SCOPES
from orchestrator.core.checkup import Check, Verdict, run_probes
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.adapters.aws.world import set_up, share_role
from tests.cloudbox.box import REGION, Box
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.operators import POWER_USER, make_operator, operator_policy, power_user_policy
from tests.engine.fakes import MACHINE
from tests.laptop import Laptop

T4 = Resources(accelerators=Accelerators(name="T4"), regions=(REGION,))
H100 = Resources(accelerators=Accelerators(name="H100"))
MI300X = Resources(accelerators=Accelerators(name="MI300X"))


class WrongClock(SystemClock):
    """A computer's clock that is ahead."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


Checks = Mapping[str, Check]


def check_up(folder: Path, provider: str, environ: Mapping[str, str], wish: Resources, **changes: object) -> Checks:
    """Look at an account, as a fresh laptop does; each line on which something isn't right has its fix."""
    context = Context(
        state_dir=folder, runtime_dir=folder, clock=SystemClock(), key_file=folder / "key", environ=dict(environ)
    )
    probes = open_probes(provider, replace(context, **changes), wish)  # type: ignore[arg-type]
    checks = {check.name: check for check in run_probes(probes)}
    assert [name for name, check in checks.items() if check.verdict is not Verdict.OK and not check.fix] == []
    return checks


def verdicts(checks: Checks) -> dict[str, str]:
    """Return what isn't right."""
    return {name: str(check.verdict) for name, check in checks.items() if check.verdict is not Verdict.OK}


@pytest.fixture
def enforced(api: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """An account that kedge is set up in, and whose user has exactly the documented policy."""
    set_up(api)
    yield api
    api.enforce_iam(False)


def work_as(api: Box, monkeypatch: pytest.MonkeyPatch, without: str = "") -> None:
    for name, value in {**api.env, **make_operator(api, operator_policy(without=without))}.items():
        monkeypatch.setenv(name, value)
    api.enforce_iam()


def test_an_account_that_is_ready_passes_with_the_documented_policy_alone(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every line is ok for a user who isn't an administrator, and nothing is made or changed."""
    work_as(enforced, monkeypatch)
    enforced.reset_calls()
    checks = check_up(tmp_path, "aws", {}, T4)
    bad = [check for check in checks.values() if check.verdict is not Verdict.OK]
    assert bad == [], "\n".join(check.found for check in bad)
    assert "as arn:aws:iam::123456789012:user/ada" in checks["credentials"].found
    assert "vCPUs" in checks["quota"].found
    looks = ("Describe", "Get", "List", "Head", "Simulate", "HEAD")
    assert [call.action for call in enforced.calls() if not call.action.startswith(looks)] == []
    # What was remembered since the first look is no snapshot.
    assert check_up(tmp_path, "aws", {}, T4)["offers"].verdict is Verdict.OK


def no_scheduler_role(api: Box) -> None:
    iam = api.client("iam")
    for policy in iam.list_role_policies(RoleName="kedge-scheduler")["PolicyNames"]:
        iam.delete_role_policy(RoleName="kedge-scheduler", PolicyName=policy)
    for attached in iam.list_attached_role_policies(RoleName="kedge-scheduler")["AttachedPolicies"]:
        iam.detach_role_policy(RoleName="kedge-scheduler", PolicyArn=attached["PolicyArn"])
    iam.delete_role(RoleName="kedge-scheduler")


def no_default_network(api: Box) -> None:
    ec2 = api.client("ec2")
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    for vpc in ec2.describe_vpcs()["Vpcs"]:
        ec2.delete_vpc(VpcId=vpc["VpcId"])


def no_subnets(api: Box) -> None:
    ec2 = api.client("ec2")
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])


def no_trust(api: Box) -> None:
    no_scheduler_role(api)
    ec2 = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    api.client("iam").create_role(
        RoleName="kedge-scheduler",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [ec2]}),
    )


def no_quota(api: Box) -> None:
    api.set_quota("L-DB2E81BA", 0)


@pytest.mark.parametrize(
    ("harm", "line", "fix"),
    [
        (lambda api: api.client("s3").delete_bucket(Bucket="kedge-test"), "bucket", "kedge bootstrap"),
        (lambda api: api.give_bucket_away("kedge-test"), "bucket", "docs/aws-permissions.md"),
        (no_scheduler_role, "guards", "kedge bootstrap"),
        (no_trust, "guards", "kedge bootstrap"),
        (no_default_network, "network", "create-default-vpc"),
        (no_subnets, "network", "create-default-subnet"),
        (lambda api: api.fail_next("DescribeVpcs", "InternalFailure", times=None), "network", "again in a minute"),
        (no_quota, "offers", "servicequotas"),
        (no_quota, "quota", "servicequotas"),
    ],
    ids=["bucket", "other's", "guards", "distrusted", "network", "no subnet", "unexplained", "offers", "quota"],
)
def test_each_thing_that_an_aws_account_lacks_is_named_with_its_fix(
    harm: Callable[[Box], object],
    line: str,
    fix: str,
    enforced: Box,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """One thing is taken away, and its line fails."""
    harm(enforced)
    work_as(enforced, monkeypatch)
    failed = check_up(tmp_path, "aws", {}, T4)[line]
    assert failed.verdict is Verdict.FAILED
    assert fix in failed.fix


def test_missing_permissions_are_named(enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IAM's simulator is asked for every statement of the policy, with values for which its conditions hold."""
    work_as(enforced, monkeypatch, without="scheduler:CreateSchedule")
    failed = check_up(tmp_path, "aws", {}, T4)["permissions"]
    assert failed.verdict is Verdict.FAILED
    assert failed.found == "not allowed: scheduler:CreateSchedule"
    assert "docs/aws-permissions.md" in failed.fix


@pytest.mark.parametrize(
    ("without", "found"),
    [
        ("", "all that a launch does is allowed, as IAM simulates it"),
        ("GiveRoleToMachines", "not allowed: iam:PassRole"),
    ],
)
def test_a_power_user_needs_no_writing_call_of_iam_where_all_runs_have_one_role(
    without: str, found: str, enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PowerUserAccess and the documented policy pass on every line: exactly what a launch takes there is checked."""
    share_role(enforced)
    policy = power_user_policy()
    policy["Statement"] = [each for each in policy["Statement"] if each["Sid"] != without]
    for name, value in {**enforced.env, **make_operator(enforced, policy, POWER_USER)}.items():
        monkeypatch.setenv(name, value)
    enforced.enforce_iam()
    checks = check_up(tmp_path, "aws", {}, T4)
    assert checks["permissions"].found == found
    assert verdicts(checks) == ({"permissions": "failed"} if without else {})


def test_a_power_user_can_t_launch_where_each_run_has_a_role_of_its_own(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same person in an account without the shared role: the missing permissions are those on roles."""
    for name, value in {**enforced.env, **make_operator(enforced, power_user_policy(), POWER_USER)}.items():
        monkeypatch.setenv(name, value)
    enforced.enforce_iam()
    failed = check_up(tmp_path, "aws", {}, T4)["permissions"]
    assert failed.verdict is Verdict.FAILED
    assert "iam:CreateRole" in failed.found


def test_the_users_own_network_is_looked_at_instead_of_the_default_one(
    enforced: Box, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the user's settings, with the documented policy; there is no default VPC, and a launch needs none."""
    no_default_network(enforced)
    ec2 = enforced.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZone=f"{REGION}a")
    settings = laptop.home / "settings.yaml"
    work_as(enforced, monkeypatch)
    laptop.extra_env |= {**enforced.env, "KEDGE_CONFIG": str(settings)}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        laptop.extra_env[name] = os.environ[name]

    def network(named: str, code: int) -> dict[str, str]:
        settings.write_text(f"provider: {{aws: {{vpc: {named}}}}}\n")
        checks = laptop.json("doctor", "--provider", "aws", "--gpu", "t4", "--region", f"eu-west-1,{REGION}", code=code)
        return next(dict(check) for check in checks if check["name"] == "network")

    found = network(vpc, 0)
    assert (found["verdict"], found["found"]) == (
        "ok",
        f"your own in {REGION}: {vpc}, subnets: 1, a security group for each run",
    )
    missing = network("vpc-0123456789abcdef0", 1)
    assert missing["verdict"] == "failed"
    assert "settings.yaml:1" in missing["found"]
    assert "there is no vpc-0123456789abcdef0 in eu-west-1" in missing["found"]


@pytest.mark.parametrize(("without", "verdict"), [("", "warning"), ("MakeWithRunTag", "failed")])
def test_dry_runs_take_the_place_of_a_simulator_that_may_not_be_asked(
    without: str, verdict: str, enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They tell of EC2 alone, and make nothing."""
    policy = operator_policy(without=without)
    policy["Statement"] = [each for each in policy["Statement"] if each["Sid"] != "Doctor"]
    for name, value in {**enforced.env, **make_operator(enforced, policy)}.items():
        monkeypatch.setenv(name, value)
    enforced.enforce_iam()
    check = check_up(tmp_path, "aws", {}, T4)["permissions"]
    assert str(check.verdict) == verdict
    assert ("ec2:CreateVolume" in check.found) == (verdict == "failed")
    enforced.enforce_iam(False)
    assert enforced.client("ec2").describe_volumes()["Volumes"] == []


def test_an_aws_account_before_its_bootstrap_is_told_to_have_one(
    api: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No bucket, no role for deadlines; the rest is looked at all the same."""
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    checks = check_up(tmp_path, "aws", {}, T4)
    for line in ("account level", "bucket", "guards"):
        assert checks[line].verdict is Verdict.FAILED
        assert "kedge bootstrap --provider aws" in checks[line].fix
    assert checks["network"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("without", "line", "fix"),
    [
        ("FirstSpotMachine", "permissions", "docs/aws-permissions.md"),
        ("servicequotas:GetServiceQuota", "quota", "servicequotas"),
        ("ec2:DescribeInstanceTypes", "quota", "fix 'offers' first"),
    ],
)
def test_what_aws_does_not_tell_or_what_is_needed_sometimes_is_a_warning(
    without: str, line: str, fix: str, enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A launch may work all the same; how to know, or to be safe, is said."""
    work_as(enforced, monkeypatch, without=without)
    warned = check_up(tmp_path, "aws", {}, T4)[line]
    assert warned.verdict is Verdict.WARNING
    assert fix in warned.fix


def test_remembered_prices_are_good_for_planning_only(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody told what is for sale now: the network to EC2 is gone."""
    for name, value in {**enforced.env, "AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    warned = check_up(tmp_path, "aws", {}, T4)["offers"]
    assert warned.verdict is Verdict.WARNING
    assert "planning only" in warned.fix


def test_without_credentials_nothing_else_is_asked(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line says so, and the others wait for it: ten times the same error would hide the cause."""
    for name, value in {**enforced.env, "AWS_ACCESS_KEY_ID": "AKIANOBODY", "AWS_SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(name, value)
    enforced.enforce_iam()
    checks = check_up(tmp_path, "aws", {}, T4)
    assert checks["credentials"].verdict is Verdict.FAILED
    assert "aws configure" in checks["credentials"].fix
    assert checks["permissions"].found == "not looked at"


def test_a_wrong_clock_is_found_at_both_clouds(
    enforced: Box, do_api: DigitalOceanBox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten minutes ahead: signatures are refused, and deadlines come too early. fact: aws-signature-age."""
    for name, value in enforced.env.items():
        monkeypatch.setenv(name, value)
    for provider, environ, wish in (("aws", {}, T4), ("do", do_api.environ, H100)):
        failed = check_up(tmp_path, provider, environ, wish, clock=WrongClock(timedelta(minutes=10)))["clock"]
        assert failed.verdict is Verdict.FAILED
        assert "ahead" in failed.found
        assert "timedatectl" in failed.fix


def test_a_clock_that_is_a_little_wrong_or_can_t_be_compared_is_told(do_api: DigitalOceanBox) -> None:
    """Signatures are taken then, but deadlines are a little off; where nobody answers, the network is the fault."""
    url, ca_file = f"{do_api.endpoint}/v2/account", str(do_api.ca_file)
    for minutes, said in ((2, "ahead"), (-2, "behind")):
        verdict, found, fix = look_at_clock(url, WrongClock(timedelta(minutes=minutes)), ca_file=ca_file)
        assert verdict is Verdict.WARNING
        assert said in found
        assert "timedatectl" in fix
    assert look_at_clock(url, WrongClock(timedelta(minutes=-6)), ca_file=ca_file)[0] is Verdict.FAILED
    with pytest.raises(UnreachableError) as nobody:
        look_at_clock("http://127.0.0.1:9", SystemClock())
    assert nobody.value.fix == "check the network"


DO_SCOPES = (
    *("account:read", "actions:read", "regions:read", "sizes:read", "image:read"),
    *(f"{kind}:{verb}" for kind in ("droplet", "ssh_key", "tag", "firewall") for verb in ("read", "create", "delete")),
)


def do_environ(do: DigitalOceanBox, *, without: str = "") -> dict[str, str]:
    """Return the variables of a user whose token has the documented scopes, but for one."""
    token = do.make_token(*(scope for scope in DO_SCOPES if scope != without))
    return {
        **do.environ,
        "DIGITALOCEAN_ACCESS_TOKEN": token,
        "KEDGE_DIGITALOCEAN_DELETE_TOKEN": do.make_token(*SCOPES),
    }


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
    """What the API doesn't tell, and what works less well, is a warning; nothing is made or changed.

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
    """Found by calls that change nothing. fact: do-scope-before-content."""
    failed = check_up(tmp_path, "do", do_environ(do_api, without=scope), H100)["permissions"]
    assert (failed.verdict, failed.found) == (Verdict.FAILED, f"the token lacks {scope}")
    assert "docs/digitalocean.md" in failed.fix


def test_what_else_a_digitalocean_account_can_lack_is_named(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """A token that nobody knows, a delete token that may not delete or is missing, a bucket, an offer, VPCs, limits."""
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
    do_api.settings.droplet_limit = 0
    assert line("quota") == ("failed", "ask for more in the control panel, under Settings, Resource Limits")
    do_api.settings.account_status = "locked"
    assert line("credentials") == ("failed", "see the control panel, or ask support")


def test_a_droplet_that_does_not_delete_itself_is_told_by_the_self_test(tmp_path: Path) -> None:
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


def test_a_token_that_may_not_read_networks_launches_all_the_same(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """The API makes a default VPC where there is none: nothing is wrong."""
    do_api.faults.fail_next("GET", "/v2/vpcs", status=403, times=None)
    assert check_up(tmp_path, "do", do_environ(do_api), H100)["network"].verdict is Verdict.OK


def test_the_command_prints_a_table_or_json_and_exits_with_1_where_a_launch_would_fail(
    laptop: Laptop, do_api: DigitalOceanBox
) -> None:
    """Each line has its fix."""
    laptop.extra_env |= do_environ(do_api)
    assert "the token has the scopes" in laptop.kedge("doctor", "--provider", "do", "--gpu", "h100")
    laptop.extra_env |= do_environ(do_api, without="droplet:create")
    said = laptop.kedge("doctor", "--provider", "do", code=1)
    (line,) = (line for line in said.splitlines() if line.startswith("!!  permissions"))
    assert line.endswith("make a token with the scopes that docs/digitalocean.md lists")
    found = {check["name"]: check["verdict"] for check in laptop.json("doctor", "--provider", "do", code=1)}
    assert (found["permissions"], found["credentials"]) == ("failed", "ok")
    laptop.kedge("doctor", "--provider", "gcp", code=2)
    assert "do" in laptop.errors
