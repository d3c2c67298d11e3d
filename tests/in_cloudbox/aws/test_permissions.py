"""The documented policy of an operator: enough for the whole life of a run, and nothing more."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.plan import apply_account, discard_account, plan_account
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.job import AtEnd, DataMount, Resources, VolumeSpec
from orchestrator.core.offer import Accelerators
from orchestrator.core.transfers import SecretOrder
from tests.adapters.aws.world import RUN, AwsWorld, QuickClock, set_up, share_role
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.cloudbox.aws.operators import POWER_USER, make_operator, operator_policy, power_user_policy
from tests.cloudbox.aws.permissions.evaluation import Need, allows

M1 = f"{RUN}-m1"
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20, at_end=AtEnd.SNAPSHOT)
RESTORED = replace(SCANS, name="restored", target="data/restored", at_end=AtEnd.KEEP)
OTHER_ADDRESS = "198.51.100.9/32"

NOT_SEEN_HERE = {
    "ec2:DescribeSubnets": "a job that names a network of its own",
    "ec2:GetManagedPrefixListEntries": "a security group of the user's own with a prefix list in a rule for port 22",
    "iam:DetachRolePolicy": "a role to which somebody has attached a policy of their own",
    "iam:ListAttachedRolePolicies": "a role to which somebody has attached a policy of their own",
    "iam:ListInstanceProfilesForRole": "a role that somebody has put into an instance profile of their own",
    "iam:ListRolePolicies": "a role to which somebody has given a policy of their own",
    "iam:SimulatePrincipalPolicy": "`kedge doctor`",
    "s3:AbortMultipartUpload": "an upload in parts that breaks off",
    "s3:DeleteObject": "the old parts of a data set that has changed, two days later",
}
"""Allowed actions that the life below doesn't need, each with the case that needs it."""


@pytest.fixture
def enforced(api: Box) -> Iterator[Box]:
    """An account that checks permissions once the test has set it up."""
    yield api
    api.enforce_iam(False)


def work_as(api: Box, monkeypatch: pytest.MonkeyPatch, folder: Path, policy: dict[str, Any]) -> AwsWorld:
    """Become a user with this policy, in an account that an administrator has set up."""
    set_up(api)
    return sign_in(api, monkeypatch, folder, make_operator(api, policy))


def sign_in(api: Box, monkeypatch: pytest.MonkeyPatch, folder: Path, keys: Mapping[str, str]) -> AwsWorld:
    """Use a user's keys from now on, in an account that checks permissions."""
    for name, value in {**api.env, **keys}.items():
        monkeypatch.setenv(name, value)
    api.reset_calls()
    api.enforce_iam()
    return AwsWorld(api=api, folder=folder)


def live(aws: AwsWorld, folder: Path) -> None:
    """Take a run through its life: offers, data, a machine with a volume, a moved laptop, an end; then a sweep."""
    for use_spot in (True, False):
        aws.provider().offers(Resources(accelerators=Accelerators(name="t4"), use_spot=use_spot, regions=(REGION,)))
    _push_data(aws, folder / "scans")
    aws.provider().create(aws.order(spot=True, volumes=(SCANS,)))
    (machine,) = aws.provider().machines()
    assert machine.id == M1
    aws.provider().guard(M1)
    aws.provider().move_deadline(M1, machine.deadline_at + timedelta(hours=1))
    assert aws.provider().reopen(M1, OTHER_ADDRESS)
    aws.provider().destroy(M1)
    assert aws.provider().describe(M1) is None
    (copied,) = [line for line in aws.provider().release(RUN) if "snapshot" in line]
    _restore(aws, copied.rpartition(" ")[2])
    # The same run from another computer, which has no records of it.
    # Of a run with several machines: it is in a placement group.
    aws.provider().create(aws.order(2, num_nodes=2, volumes=(SCANS, replace(RESTORED, at_end=AtEnd.DELETE))))
    elsewhere = replace(aws, folder=folder / "elsewhere")
    provider = elsewhere.provider()
    found = provider.sweep()
    assert ([machine.id for machine in found.machines], found.unseen) == ([f"{RUN}-m2"], ())
    provider.destroy(f"{RUN}-m2")
    provider.release(RUN)


def _restore(aws: AwsWorld, snapshot_id: str) -> None:
    """Have a volume made from the previous run's snapshot, and leave it to the next run."""
    restored = replace(RESTORED, snapshot_id=snapshot_id, initialization_mibps=100)
    aws.provider().offers(Resources(instance_type="m5.large", volumes=(restored,), regions=(REGION,)))
    aws.provider().create(aws.order(1, id="again-1-m1", run_id="again-1", volumes=(restored,)))
    aws.provider().destroy("again-1-m1")
    aws.provider().release("again-1")


def _push_data(aws: AwsWorld, source: Path) -> None:
    source.mkdir()
    (source / "a.txt").write_text("1")
    (source / "b.txt").write_text("2")
    data = aws.backing().data
    mount = DataMount(source=str(source), target="scans")
    assert data is not None
    data.put_data(mount, lambda _done, _total: None)
    (source / "b.txt").unlink()
    data.put_data(mount, lambda _done, _total: None, delete=True)


def needs_of(api: Box) -> list[Need]:
    """Return every permission that was needed, each once."""
    found = {repr(need): Need(**need) for call in api.calls() for need in call.needs}
    return list(found.values())


def test_the_documented_policy_is_enough_and_each_part_of_it_is_needed(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is refused; every statement was needed, and every action was needed or has its reason in the table."""
    policy = operator_policy()
    aws = work_as(enforced, monkeypatch, tmp_path, policy)
    secrets = aws.backing().secrets
    assert secrets is not None
    secrets.put(SecretOrder(run_id=RUN, machine_id=M1, values={"HF_TOKEN": "hf_1"}))
    live(aws, tmp_path)
    assert leftovers(enforced) == []
    assert [call for call in enforced.calls() if call.status in (401, 403)] == []
    needed = needs_of(enforced)
    useless = {
        action
        for statement in policy["Statement"]
        for action in statement["Action"]
        if not any(allows([{"Statement": {**statement, "Action": action}}], None, need) for need in needed)
    }
    assert useless == set(NOT_SEEN_HERE)


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("scheduler:CreateSchedule", "CreateSchedule"),
        ("GiveRoleToSchedules", "iam:PassRole"),
        ("GiveRoleToMachines", "iam:PassRole"),
        ("TagWhatIsMade", "ec2:CreateTags"),
        ("MakeWithRunTag", "ec2:Create"),
        ("MakeRunRoles", "iam:CreateRole"),
        ("FirstSpotMachine", "aws iam create-service-linked-role"),
        ("s3:PutObject", "PutObject"),
        ("s3:GetObject", "HeadObject"),
    ],
)
def test_without_a_statement_the_launch_says_what_is_missing_and_leaves_nothing(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without: str, said: str
) -> None:
    """The denial names the permission; resources that were created before are removed, and nothing bills."""
    aws = work_as(enforced, monkeypatch, tmp_path, operator_policy(without=without))
    with pytest.raises(KedgeError) as refused:
        aws.provider().create(aws.order(spot=True, volumes=(SCANS,)))
    assert said in refused.value.why + refused.value.fix
    aws.provider().release(RUN)
    enforced.enforce_iam(False)
    assert leftovers(enforced) == []
    assert enforced.billing() == []


def test_a_power_user_needs_no_right_to_make_roles_where_all_runs_have_one(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole life changes nothing in IAM; the plan says what that costs, and the shared role stays as it was."""
    set_up(enforced, RunRole="true")
    aws = sign_in(enforced, monkeypatch, tmp_path, make_operator(enforced, power_user_policy(), POWER_USER))
    live(aws, tmp_path)
    assert [call for call in enforced.calls() if call.status in (401, 403)] == []
    asked = {need.action for need in needs_of(enforced) if need.action.startswith("iam:")}
    # The first spot machine's role is AWS's own; PowerUserAccess allows its creation.
    assert asked == {"iam:GetRole", "iam:ListRoles", "iam:ListRoleTags", "iam:PassRole", "iam:CreateServiceLinkedRole"}
    passed = {need.resource.rpartition("/")[2] for need in needs_of(enforced) if need.action == "iam:PassRole"}
    assert passed == {"kedge-runs", "kedge-scheduler"}
    provider = aws.provider()
    provider.offers(Resources(accelerators=Accelerators(name="t4"), regions=(REGION,)))
    assert "each other's results" in provider.caveats[0]
    enforced.enforce_iam(False)
    assert leftovers(enforced) == ["role kedge-runs", "profile kedge-runs"]


def test_a_launch_finds_a_role_that_was_made_after_its_refusal(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What kedge remembers of the account is up to a day old; `bootstrap --run-role` has run on another computer."""
    set_up(enforced)
    aws = sign_in(enforced, monkeypatch, tmp_path, make_operator(enforced, power_user_policy(), POWER_USER))
    with pytest.raises(KedgeError, match="the role of run") as refused:
        aws.provider().create(aws.order())
    assert "bootstrap --provider aws --run-role" in refused.value.fix
    enforced.enforce_iam(False)
    share_role(enforced)
    enforced.enforce_iam()
    aws.provider().create(aws.order())
    (instance,) = aws.instances()
    assert instance["IamInstanceProfile"]["Arn"].endswith("instance-profile/kedge/kedge-runs")
    enforced.enforce_iam(False)


def test_the_account_level_stays_while_a_machine_has_the_role_of_all_runs(
    api: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No role of the run's own would show that a machine exists."""
    set_up(api, RunRole="true")
    aws = AwsWorld(api=api, folder=tmp_path)
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    aws.provider().create(aws.order())
    with pytest.raises(ConflictError, match="still need") as refused:
        plan_removal(AwsSession())
    assert M1 in refused.value.why


def test_a_bootstrap_needs_the_permissions_that_the_page_lists(enforced: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of kedge's own calls; CloudFormation's calls use the same person's permissions."""
    for name, value in enforced.env.items():
        monkeypatch.setenv(name, value)
    enforced.reset_calls()
    enforced.enforce_iam()
    session, clock, template = AwsSession(), QuickClock(), resource("infra", "aws", "account.yaml").read_text()
    wishes = AccountSettings(run_role=True, budget_usd=Decimal(50), budget_email="ada@example.org")
    account = apply_account(session, plan_account(session, template, wishes, clock), clock)
    discard_account(session, plan_account(session, template, AccountSettings(read_buckets=("maps",)), clock))
    session.client("s3").put_object(Bucket=account.bucket, Key="data/maps/1", Body=b"1")
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, clock, delete_data=True)
    page = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "write_permissions.py"))
    assert {need.action for need in needs_of(enforced)} - {"s3:PutObject"} == set(page["BOOTSTRAP"])
