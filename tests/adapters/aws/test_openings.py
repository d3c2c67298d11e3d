"""Which addresses may reach the machines of a run."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import BadRequestError
from tests.adapters.aws.world import HOME, RUN, AwsWorld, open_to

M1 = f"{RUN}-m1"


def test_machines_are_opened_to_the_address_that_the_user_has_now(aws: AwsWorld) -> None:
    """The previous address is closed."""
    aws.provider().create(aws.order(1))
    aws.ssh_from = "198.51.100.9"
    aws.provider().create(aws.order(2))
    assert open_to(aws) == ["198.51.100.9/32"]


@pytest.mark.parametrize("address", ["0.0.0.0/0", "::/0", "home"])
def test_machines_are_never_opened_to_everybody(aws: AwsWorld, address: str) -> None:
    """`0.0.0.0/0` and invalid addresses are refused before anything is created."""
    aws.ssh_from = address
    with pytest.raises(BadRequestError, match=address):
        aws.provider().create(aws.order())
    assert aws.instances() == []
    assert aws.api.calls("iam", "CreateRole") == []


def test_a_security_group_that_somebody_deleted_is_created_again(aws: AwsWorld) -> None:
    """AWS refuses a launch without the run's group. The launch creates the group again, and continues."""
    aws.provider().create(aws.order(1))
    aws.provider().destroy(M1)
    laptop = aws.provider()
    client = aws.api.client("ec2")
    groups = client.describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])
    client.delete_security_group(GroupId=groups["SecurityGroups"][0]["GroupId"])
    laptop.create(aws.order(2))
    assert open_to(aws) == [HOME]
