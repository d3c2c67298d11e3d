"""What a release deletes of a run that has no machine left."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import StillBillingError
from tests.adapters.aws.world import HOME, RUN, AwsWorld, open_to

M1 = f"{RUN}-m1"


def test_a_release_deletes_what_an_ended_machine_left(aws: AwsWorld) -> None:
    """Its schedule still exists; the release deletes it with role and group."""
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
    """Its machines would lose their bucket, and the user would lose SSH access."""
    aws.provider().create(aws.order())
    with pytest.raises(StillBillingError, match=M1):
        aws.provider().release(RUN)
    assert open_to(aws) == [HOME]


def test_a_release_deletes_nothing_of_another_run(aws: AwsWorld) -> None:
    """Not even of a run whose id starts the same. A second release has nothing left to do."""
    aws.provider().create(aws.order(1))
    aws.provider().create(aws.order(1, id=f"{RUN}x-m1", run_id=f"{RUN}x"))
    aws.provider().destroy(M1)
    aws.provider().release(RUN)
    assert aws.schedules() == [f"{RUN}x-m1"]
    roles = [role["RoleName"] for role in aws.api.client("iam").list_roles(PathPrefix="/kedge/")["Roles"]]
    assert f"kedge-run-{RUN}x" in roles
    assert f"kedge-run-{RUN}" not in roles
    assert list(aws.provider().release(RUN)) == []


def test_a_release_needs_no_local_record(aws: AwsWorld) -> None:
    """Another laptop finds the run's resources by their tags."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    assert any("role" in line for line in other.provider().release(RUN))
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag-key", "Values": ["kedge-run"]}])
    assert groups["SecurityGroups"] == []
