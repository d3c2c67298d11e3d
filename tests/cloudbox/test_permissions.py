"""The documented policy of an operator: enough for the whole life of a run, and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers import Context
from orchestrator.adapters.providers.aws.provider import make
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd, DataMount, Resources, VolumeSpec
from orchestrator.core.offer import Accelerators
from tests.adapters.aws.world import RUN, AwsWorld, set_up
from tests.cloudbox.box import REGION, Box
from tests.cloudbox.leftovers import leftovers
from tests.cloudbox.operators import make_operator, operator_policy
from tests.cloudbox.permissions.evaluation import Need, allows

M1 = f"{RUN}-m1"
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20, at_end=AtEnd.SNAPSHOT)
OTHER_ADDRESS = "198.51.100.9/32"

NOT_SEEN_HERE = {
    "ec2:DescribeSubnets": "a job that names a network of its own",
    "ec2:DescribeVpcs": "a job that names a network of its own, and `kedge doctor`",
    "iam:DetachRolePolicy": "a role to which somebody has attached a policy of their own",
    "iam:ListAttachedRolePolicies": "a role to which somebody has attached a policy of their own",
    "iam:ListRolePolicies": "a role to which somebody has given a policy of their own",
    "iam:SimulatePrincipalPolicy": "`kedge doctor`",
    "s3:AbortMultipartUpload": "an upload in parts that breaks off",
    "s3:DeleteObject": "the old parts of a data set that has changed, two days later",
}
"""Allowed actions that the life below doesn't take, each with what takes it."""


@pytest.fixture
def enforced(api: Box) -> Iterator[Box]:
    """An account that checks permissions once the test has set it up."""
    yield api
    api.enforce_iam(False)


def work_as(api: Box, monkeypatch: pytest.MonkeyPatch, folder: Path, policy: dict[str, Any]) -> AwsWorld:
    """Become a user with this policy, in an account that an administrator has set up."""
    set_up(api)
    for name, value in {**api.env, **make_operator(api, policy)}.items():
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
    assert [machine.id for machine in aws.provider().machines()] == [M1]
    aws.provider().guard(M1)
    assert aws.provider().reopen(M1, OTHER_ADDRESS)
    aws.provider().destroy(M1)
    assert aws.provider().describe(M1) is None
    assert any("snapshot" in line for line in aws.provider().release(RUN))
    # The same run from another computer, which has no records of it.
    aws.provider().create(aws.order(2, volumes=(SCANS,)))
    elsewhere = replace(aws, folder=folder / "elsewhere")
    provider = elsewhere.provider()
    found = provider.sweep()
    assert ([machine.id for machine in found.machines], found.unseen) == ([f"{RUN}-m2"], ())
    provider.destroy(f"{RUN}-m2")
    provider.release(RUN)


def _push_data(aws: AwsWorld, source: Path) -> None:
    source.mkdir()
    (source / "a.txt").write_text("1")
    (source / "b.txt").write_text("2")
    context = Context(
        state_dir=aws.folder, runtime_dir=aws.folder, clock=aws.clock, key_file=aws.folder / "key", environ={}
    )
    backing = make(context)
    mount = DataMount(source=str(source), target="scans")
    assert backing.data is not None
    backing.data.put_data(mount, lambda _done, _total: None)
    (source / "b.txt").unlink()
    backing.data.put_data(mount, lambda _done, _total: None, delete=True)


def needs_of(api: Box) -> list[Need]:
    """Return every permission that was needed, each once."""
    found = {repr(need): Need(**need) for call in api.calls() for need in call.needs}
    return list(found.values())


def test_the_documented_policy_is_enough_and_each_part_of_it_is_needed(
    enforced: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is refused; every statement allows something that was needed, every action too or its reason is given."""
    policy = operator_policy()
    live(work_as(enforced, monkeypatch, tmp_path, policy), tmp_path)
    assert leftovers(enforced) == []
    assert [call for call in enforced.calls() if call.status in (401, 403)] == []
    needed = needs_of(enforced)
    useless = [
        statement["Sid"]
        for statement in policy["Statement"]
        if not any(allows([{"Statement": statement}], None, need) for need in needed)
    ]
    assert useless == ["Doctor"]
    allowed = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert allowed - {need.action for need in needed} == set(NOT_SEEN_HERE)


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
    """The denial names the permission; what was made before it goes, and nothing bills."""
    aws = work_as(enforced, monkeypatch, tmp_path, operator_policy(without=without))
    with pytest.raises(KedgeError) as refused:
        aws.provider().create(aws.order(spot=True, volumes=(SCANS,)))
    assert said in refused.value.why + refused.value.fix
    aws.provider().release(RUN)
    enforced.enforce_iam(False)
    assert leftovers(enforced) == []
    assert enforced.billing() == []
