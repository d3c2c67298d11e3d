"""No machine is launched with user-data that cloud-init could not read."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd, VolumeSpec
from tests.adapters.aws.world import AwsWorld


@pytest.mark.parametrize("target", ["a\x1bb", "a\x85b", "a\u2028b", "a\rb"])
def test_user_data_that_cloud_init_cannot_read_makes_no_machine(aws: AwsWorld, target: str) -> None:
    """One bad character voids the whole cloud-config: no deadline, no user, and a bill. This check is the last one."""
    volume = VolumeSpec(name="scratch", target=target, size_gib=5, at_end=AtEnd.DELETE)
    with pytest.raises(KedgeError, match="user-data") as caught:
        aws.provider().create(aws.order(volumes=(volume,)))
    assert caught.value.why
    assert caught.value.fix
    assert aws.instances() == []
    assert aws.api.client("ec2").describe_volumes()["Volumes"] == []
