"""`kedge doctor --provider aws` in the box: an account that is ready, and each line failing once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.checkup import Verdict
from tests.adapters.aws.world import share_role
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.operators import POWER_USER, make_operator, operator_policy, power_user_policy
from tests.in_cloudbox.checkups import T4, check_up, verdicts, work_as
from tests.support.laptop import Laptop


def test_an_account_that_is_ready_passes_with_the_documented_policy_alone(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every line is ok for a user who isn't an administrator, and nothing is created or changed."""
    work_as(enforced, monkeypatch)
    enforced.reset_calls()
    checks = check_up(tmp_path, "aws", {}, T4)
    bad = [check for check in checks.values() if check.verdict is not Verdict.OK]
    assert bad == [], "\n".join(check.found for check in bad)
    assert "as arn:aws:iam::123456789012:user/ada" in checks["credentials"].found
    assert "vCPUs" in checks["quota"].found
    looks = ("Describe", "Get", "List", "Head", "Simulate", "HEAD")
    assert [call.action for call in enforced.calls() if not call.action.startswith(looks)] == []
    # Only answers since the first check are cached; none is a snapshot.
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
    """One thing is removed, and its line fails."""
    harm(enforced)
    work_as(enforced, monkeypatch)
    failed = check_up(tmp_path, "aws", {}, T4)[line]
    assert failed.verdict is Verdict.FAILED
    assert fix in failed.fix


def test_missing_permissions_are_named(enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IAM's simulator is asked about every statement of the policy, with values that fulfil its conditions."""
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
    """PowerUserAccess and the documented policy pass every line: only permissions that a launch needs are checked."""
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
    """They cover EC2 only, and create nothing."""
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
    """No bucket, no role for deadlines; the rest is checked anyway."""
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
def test_unknown_or_sometimes_needed_things_are_warnings(
    without: str, line: str, fix: str, enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A launch may still work; the line says how to find out, or how to be safe."""
    work_as(enforced, monkeypatch, without=without)
    warned = check_up(tmp_path, "aws", {}, T4)[line]
    assert warned.verdict is Verdict.WARNING
    assert fix in warned.fix


def test_remembered_prices_are_good_for_planning_only(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody says what is for sale now: the network to EC2 is down."""
    for name, value in {**enforced.env, "AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    warned = check_up(tmp_path, "aws", {}, T4)["offers"]
    assert warned.verdict is Verdict.WARNING
    assert "planning only" in warned.fix


def test_without_credentials_nothing_else_is_checked(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line reports it, and the others are skipped: the same error ten times would hide the cause."""
    for name, value in {**enforced.env, "AWS_ACCESS_KEY_ID": "AKIANOBODY", "AWS_SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(name, value)
    enforced.enforce_iam()
    checks = check_up(tmp_path, "aws", {}, T4)
    assert checks["credentials"].verdict is Verdict.FAILED
    assert "aws configure" in checks["credentials"].fix
    assert checks["permissions"].found == "not looked at"
