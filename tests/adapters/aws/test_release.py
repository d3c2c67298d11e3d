"""What is taken away with a run that has no machine left."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import StillBillingError
from tests.adapters.aws.world import HOME, RUN, AwsWorld, open_to

M1 = f"{RUN}-m1"


def test_a_machine_that_ended_by_itself_leaves_nothing_after_its_run(aws: AwsWorld) -> None:
    """Its schedule is still there then: the run's release takes it away with role and group."""
    machine = aws.provider().create(aws.order())
    aws.api.client("ec2").terminate_instances(InstanceIds=[machine.provider_id])
    assert aws.provider().describe(M1) is None
    said = aws.provider().release(RUN)
    assert aws.schedules() == []
    assert [line.split(" ")[:2] for line in said] == [
        ["removed", "schedule"],
        ["removed", "security"],
        ["removed", "role"],
    ]
    assert not [path for path in (aws.folder / "aws").rglob("*.json") if "cache-" not in str(path)]


def test_a_run_that_has_a_machine_is_not_released(aws: AwsWorld) -> None:
    """Its machines would lose their bucket and their owner would lose the way in."""
    aws.provider().create(aws.order())
    with pytest.raises(StillBillingError, match=M1):
        aws.provider().release(RUN)
    assert open_to(aws) == [HOME]


def test_a_release_takes_nothing_of_another_run(aws: AwsWorld) -> None:
    """Not of one whose id begins alike either; a second release has nothing left to do."""
    aws.provider().create(aws.order(1))
    aws.provider().create(aws.order(1, id=f"{RUN}x-m1", run_id=f"{RUN}x"))
    aws.provider().destroy(M1)
    aws.provider().release(RUN)
    assert aws.schedules() == [f"{RUN}x-m1"]
    roles = [role["RoleName"] for role in aws.api.client("iam").list_roles(PathPrefix="/kedge/")["Roles"]]
    assert f"kedge-run-{RUN}x" in roles
    assert f"kedge-run-{RUN}" not in roles
    assert list(aws.provider().release(RUN)) == []


def test_a_release_needs_no_memory(aws: AwsWorld) -> None:
    """Another laptop finds what the run has by its tags."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    assert any("role" in line for line in other.provider().release(RUN))
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag-key", "Values": ["kedge-run"]}])
    assert groups["SecurityGroups"] == []
