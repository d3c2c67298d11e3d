"""The models of the block `provider:`, in job files and the user's settings: own network, SSH access, tags."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from orchestrator.adapters.jobfile.parts import Part, list_of_one
from orchestrator.adapters.jobfile.values.fields import (
    GroupId,
    JumpHost,
    ProxyCommand,
    SubnetId,
    Tags,
    VpcId,
)


class AwsPart(Part, title="provider.aws"):
    """Your own network at AWS, the way into it, and tags. Nothing of it is ever changed or deleted."""

    vpc: VpcId | None = Field(
        default=None,
        description="The network's id; default: that of the subnet or the group, else the account's default VPC.",
        examples=["vpc-0a1b2c3d4e5f60718"],
    )
    subnet: (
        Annotated[
            tuple[SubnetId, ...],
            BeforeValidator(list_of_one, json_schema_input_type=list[SubnetId] | SubnetId),
        ]
        | None
    ) = Field(
        default=None,
        description="One or several subnets for machines; default: the subnets of the VPC.",
        examples=["subnet-0a1b2c3d4e5f60718"],
    )
    security_group: GroupId | None = Field(
        default=None,
        description="A group of yours for machines; default: a group for each run, open only to your address.",
        examples=["sg-0a1b2c3d4e5f60718"],
    )
    tags: Tags | None = Field(
        default=None,
        description="Tags for everything that a run creates, for billing.",
        examples=[{"team": "vision", "cost-center": "42"}],
    )
    jump_host: JumpHost | None = Field(
        default=None,
        description="An SSH server through which machines are reached, or its name in your SSH configuration.",
        examples=["ec2-user@bastion.example.org"],
    )
    proxy_command: ProxyCommand | None = Field(
        default=None,
        description="A command on this computer that carries the connection; %h and %p are the machine's address and "
        "port. For your settings; in a job file it needs --allow-proxy-command.",
        examples=["ssh -W %h:%p bastion"],
    )
    private_ip: bool | None = Field(
        default=None,
        description="Whether machines have no public address; default: true with a jump host or proxy command.",
    )


class ProviderPart(Part, title="provider"):
    """What belongs to your account at a provider."""

    aws: AwsPart | None = Field(default=None, description="Your own network at AWS, the way into it, and tags.")


class SettingsPart(Part, title="kedge settings"):
    """Your settings for all jobs; a job file's own `provider:` block wins, key by key."""

    provider: ProviderPart | None = Field(default=None, description="What belongs to your account at a provider.")
    reaper: Literal["elsewhere"] | None = Field(
        default=None, description="`kedge reap` runs on another computer, on a schedule."
    )
