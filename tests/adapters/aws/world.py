"""A test's laptop and its AWS account in the box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.aws.provider import make
from orchestrator.core.machine import MachineOrder
from orchestrator.core.ports import Clock
from tests.cloudbox.aws.box import REGION, Box
from tests.support.orders import changed, make_offer

RUN = "digits-1121-ab2c"
HOME = "203.0.113.7/32"
TYPE = "m5.large"


class QuickClock:
    """The computer's clock, except that sleeping takes no time."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def sleep(self, duration: timedelta) -> None:
        self._ahead += duration


def set_up(api: Box, **parameters: str) -> None:
    """Do what `kedge bootstrap --provider aws` does, with parameters for account.yaml."""
    template = resource("infra/aws/account.yaml").read_text()
    api.client("cloudformation").create_stack(
        StackName="kedge-account",
        TemplateBody=template,
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {"BucketName": "kedge-test", **parameters}.items()
        ],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )


def share_role(api: Box) -> None:
    """Do what `kedge bootstrap --run-role` does in a bootstrapped account."""
    wanted = {"BucketName": "kedge-test", "RunRole": "true"}
    api.client("cloudformation").update_stack(
        StackName="kedge-account",
        TemplateBody=resource("infra", "aws", "account.yaml").read_text(),
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in wanted.items()],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )


@dataclass
class AwsWorld:
    """One account, and the state folder of one laptop; `ssh_from` is the laptop's address."""

    api: Box
    folder: Path
    clock: Clock = field(default_factory=QuickClock)
    ssh_from: str = HOME
    environ: dict[str, str] = field(default_factory=dict)

    def context(self) -> Context:
        """Return what the provider needs from the laptop."""
        return Context(
            state_dir=self.folder,
            runtime_dir=self.folder,
            clock=self.clock,
            key_file=self.folder / "key",
            environ=self.environ,
        )

    def backing(self) -> Backing:
        """Open the provider and its bucket, as the next command does."""
        return make(self.context())

    def provider(self) -> CloudProvider:
        """Open the provider alone."""
        provider = self.backing().provider
        assert isinstance(provider, CloudProvider)
        return provider

    def order(self, number: int = 1, **changes: Any) -> MachineOrder:
        """Order a machine of the run."""
        order = MachineOrder(
            id=f"{RUN}-m{number}",
            run_id=RUN,
            offer=make_offer("aws", TYPE, REGION, zone=f"{REGION}a", usd_per_hour=Decimal("0.0974")),
            lifetime_seconds=3600,
            authorized_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ kedge",
            agent_archive=agent_archive(),
            store_url=f"s3://kedge-test/runs?region={REGION}",
            ssh_from=self.ssh_from,
        )
        return changed(order, **changes)

    def instances(self, region: str = REGION) -> list[dict[str, Any]]:
        """List all instances of the account that aren't gone."""
        answer = self.api.client("ec2", region).describe_instances()
        listed = [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
        return [instance for instance in listed if instance["State"]["Name"] != "terminated"]

    def schedules(self) -> list[str]:
        """List the names of all schedules."""
        return [item["Name"] for item in self.api.client("scheduler").list_schedules()["Schedules"]]

    def actions(self, *, without: Sequence[str] = ("s3",)) -> Counter[str]:
        """Count the control plane's calls by action."""
        return Counter(call.action for call in self.api.calls() if call.service not in without)


def open_to(aws: AwsWorld) -> list[str]:
    """List the addresses that may reach port 22 of the run's machines."""
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])
    (group,) = groups["SecurityGroups"]
    (rule,) = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 22, 22)
    return [each["CidrIp"] for each in rule["IpRanges"]]
