"""A sweep's looks at leftover roles and security groups; their tags name the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.run_resources.identity import list_roles
from orchestrator.adapters.providers.aws.tags import RUN, read_tags
from orchestrator.core.sweep import Leftover

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_iam import IAMClient


def role_leftovers(iam: IAMClient) -> Sequence[Leftover]:
    """List the roles of runs, for all regions.

    Raises:
        KedgeError: IAM doesn't tell.
    """
    return [Leftover(kind="role", name=name, run_id=run_id) for name, run_id in list_roles(iam)]


def group_leftovers(ec2: EC2Client) -> Sequence[Leftover]:
    """List the security groups of runs in the client's region.

    Raises:
        KedgeError: EC2 refuses, or doesn't answer.
    """
    region = ec2.meta.region_name
    try:
        pages = ec2.get_paginator("describe_security_groups").paginate(Filters=[{"Name": "tag-key", "Values": [RUN]}])
        groups = [group for page in pages for group in page["SecurityGroups"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"security groups in {region} can't be listed") from err
    return [
        Leftover(
            kind="security group",
            name=group.get("GroupId", ""),
            # A new tag may not be described yet although it is found.
            run_id=read_tags(group.get("Tags")).get(RUN, ""),
            region=region,
        )
        for group in groups
    ]
