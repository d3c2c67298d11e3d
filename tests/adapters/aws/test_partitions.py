"""GovCloud, China and AWS's other partitions are refused with an explanation before any request."""

from __future__ import annotations

import pytest

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.core.errors import BadRequestError
from tests.adapters.aws.world import AwsWorld, set_up
from tests.cloudbox.aws.box import Box
from tests.support.laptop import Laptop

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    deadline: 10m
    budget: 5
    resources: {{accelerators: T4, infra: aws/{place}}}
"""


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", "us-iso-east-1", "eusc-de-east-1"])
def test_a_session_in_another_aws_partition_is_refused(region: str) -> None:
    """Whether a flag names it or the user's configuration, whose credentials are not valid elsewhere.

    fact: aws-partitions
    """
    with pytest.raises(BadRequestError, match=f"{region} is not supported") as caught:
        AwsSession(region=region)
    assert "--region eu-west-1" in caught.value.fix
    with pytest.raises(BadRequestError, match="not supported"):
        AwsSession(region="us-east-1").client("ec2", region)


def test_the_partition_of_aws_region_is_checked(aws: AwsWorld) -> None:
    """The SDK does not read AWS_REGION, but the provider does.

    fact: aws-region-variable
    """
    aws.environ["AWS_REGION"] = "cn-north-1"
    with pytest.raises(BadRequestError, match="cn-north-1 is not supported"):
        aws.provider()


def test_a_job_in_another_aws_partition_is_refused_before_any_request(api: Box, laptop: Laptop) -> None:
    """Exit code 2 and no call, for the job's region, its zone, a flag, and the user's own region."""
    set_up(api)
    laptop.extra_env |= {**api.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    api.reset_calls()
    for place in ("us-gov-west-1", "cn-north-1", "us-gov-east-1/us-gov-east-1a"):
        laptop.write_job(JOB.format(place=place))
        laptop.kedge("plan", code=2)
        assert f"{place.partition('/')[0]} is not supported" in laptop.errors
    laptop.write_job(JOB.format(place="us-east-1"))
    laptop.kedge("plan", "--region", "us-gov-west-1", code=2)
    assert "belongs to AWS GovCloud (US)" in laptop.errors
    laptop.extra_env |= {"AWS_REGION": "cn-north-1", "AWS_DEFAULT_REGION": "cn-north-1"}
    for words in (["plan", "--region", "cn-northwest-1"], ["reap", "--yes", "--provider", "aws"], ["bootstrap"]):
        laptop.kedge(*words, code=5 if words[0] == "reap" else 2)
        assert "not supported" in laptop.errors or "AWS in China" in laptop.errors, words
    assert api.calls() == []
