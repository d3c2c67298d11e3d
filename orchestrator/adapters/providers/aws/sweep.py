"""Finds instances by kedge's tags, in one region or in several at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.tags import MACHINE, RUN, read_tags

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from orchestrator.adapters.providers.aws.session import AwsSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An instance, and the region that it is in."""

    region: str
    instance: InstanceTypeDef

    @property
    def tags(self) -> dict[str, str]:
        """Its tags."""
        return read_tags(self.instance.get("Tags"))

    @property
    def machine_id(self) -> str:
        """The machine that it is."""
        return self.tags.get(MACHINE, "")

    @property
    def is_gone(self) -> bool:
        """Whether AWS confirms its end; it goes on listing it for about an hour."""
        return self.instance["State"]["Name"] == "terminated"

    @property
    def is_ending(self) -> bool:
        """Whether it is gone or on its way out: nothing can run on it any more, and its disks may still be held."""
        return self.is_gone or self.instance["State"]["Name"] == "shutting-down"


def present(found: Sequence[Found]) -> list[Found]:
    """Leave out what is gone, and what is still ending where another instance has become its machine."""
    taken = {each.machine_id for each in found if not each.is_ending}
    return [each for each in found if not each.is_gone and not (each.is_ending and each.machine_id in taken)]


EVERY_MACHINE: FilterTypeDef = {"Name": "tag-key", "Values": [MACHINE]}


def of_machine(machine_id: str) -> FilterTypeDef:
    """Select the instances of one machine: one, as long as AWS keeps its word on idempotency."""
    return {"Name": f"tag:{MACHINE}", "Values": [machine_id]}


def of_instance(instance_id: str) -> FilterTypeDef:
    """Select one instance by AWS's own name for it."""
    return {"Name": "instance-id", "Values": [instance_id]}


def of_run(run_id: str) -> FilterTypeDef:
    """Select the instances of one run."""
    return {"Name": f"tag:{RUN}", "Values": [run_id]}


def find_instances(session: AwsSession, regions: Collection[str], wanted: FilterTypeDef) -> Sequence[Found]:
    """List instances, those included that AWS still shows after their end; one call for each region, all at once.

    Raises:
        KedgeError: a region doesn't answer. What may be billing there is never left out in silence.
    """
    # The SDK's clients may be shared by threads, its session may not: they are made here.
    clients = [session.client("ec2", region) for region in sorted(regions)]
    with ThreadPoolExecutor(max_workers=max(1, len(clients))) as pool:
        answers = pool.map(lambda client: find_in(client, wanted), clients)
        return [found for answer in answers for found in answer]


def find_in(client: EC2Client, wanted: FilterTypeDef) -> list[Found]:
    """List the instances of the client's region.

    Raises:
        KedgeError: it doesn't answer.
    """
    try:
        pages = client.get_paginator("describe_instances").paginate(Filters=[wanted])
        reservations = [reservation for page in pages for reservation in page["Reservations"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the machines in {client.meta.region_name} can't be listed") from err
    return [
        Found(region=client.meta.region_name, instance=instance)
        for reservation in reservations
        for instance in reservation.get("Instances", [])
    ]
