"""Finds EC2 instances, by kedge's tags or by their ids, in one region or in several in parallel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.cloud.api import InstanceSource
from orchestrator.adapters.cloud.marks import bound_lifetime, read_id, read_price
from orchestrator.adapters.cloud.model import Instance, Phase, Wanted
from orchestrator.adapters.providers.aws.access.closed import why_closed
from orchestrator.adapters.providers.aws.instances.end_reasons import parse_reason
from orchestrator.adapters.providers.aws.tags import CREATED, DEADLINE, MACHINE, PRICE, RUN, read_tags
from orchestrator.adapters.providers.aws.traits import TRAITS
from orchestrator.core.job import DEFAULT_TIME_LIMIT

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.errors import KedgeError

_PHASES = {
    "pending": Phase.PENDING,
    "running": Phase.RUNNING,
    "stopping": Phase.OFF,
    "stopped": Phase.OFF,
    "shutting-down": Phase.ENDING,
    # AWS goes on listing it for about an hour.
    "terminated": Phase.GONE,
}


def parse_instance(fields: InstanceTypeDef, region: str) -> Instance:
    """Parse EC2's description of an instance."""
    tags = read_tags(fields.get("Tags"))
    return Instance(
        id=fields["InstanceId"],
        region=region,
        machine_id=read_id(tags.get(MACHINE, "")),
        run_id=read_id(tags.get(RUN, "")),
        phase=_PHASES.get(fields["State"]["Name"], Phase.UNKNOWN),
        created_at=fields["LaunchTime"].astimezone(UTC),
        lifetime=_lifetime(tags),
        attempt=tags.get(CREATED, ""),
        host=fields.get("PublicIpAddress", ""),
        private_host=fields.get("PrivateIpAddress", ""),
        end=parse_reason(fields),
        usd_per_hour=read_price(tags.get(PRICE, "")),
    )


class AwsInstances(InstanceSource):
    """The instances of one account."""

    traits = TRAITS

    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def every_place(self) -> Sequence[str]:
        """Return the regions that are enabled for the account."""
        return self._session.regions()

    def why_closed(self, err: KedgeError) -> str:
        """Say why nothing can be rented in a region: it isn't enabled, or the organization forbids it."""
        return why_closed(err)

    def list_instances(self, wanted: Wanted, places: Collection[str]) -> Sequence[Instance]:
        """List by tags: one call for each region, in parallel."""
        return self._find(_by_tag(wanted), places)

    def read_instances(self, instance_ids: Collection[str], region: str) -> Sequence[Instance]:
        """Look up by ids, in one call."""
        return _find_in(self._session.client("ec2", region), {"Name": "instance-id", "Values": sorted(instance_ids)})

    def _find(self, wanted: FilterTypeDef, regions: Collection[str]) -> list[Instance]:
        clients = [self._session.client("ec2", region) for region in sorted(regions)]
        with ThreadPoolExecutor(max_workers=max(1, len(clients))) as pool:
            return list(chain.from_iterable(pool.map(lambda client: _find_in(client, wanted), clients)))


def _find_in(client: EC2Client, wanted: FilterTypeDef) -> list[Instance]:
    region = client.meta.region_name
    try:
        pages = client.get_paginator("describe_instances").paginate(Filters=[wanted])
        reservations = [reservation for page in pages for reservation in page["Reservations"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the machines in {region} can't be listed") from err
    return [parse_instance(each, region) for reservation in reservations for each in reservation.get("Instances", [])]


def _by_tag(wanted: Wanted) -> FilterTypeDef:
    if wanted.machine_id:
        return {"Name": f"tag:{MACHINE}", "Values": [wanted.machine_id]}
    if wanted.run_id:
        return {"Name": f"tag:{RUN}", "Values": [wanted.run_id]}
    # Either tag: an instance that names only its run bills too.
    return {"Name": "tag-key", "Values": [MACHINE, RUN]}


def _lifetime(tags: dict[str, str]) -> timedelta:
    """Return what lies between the tags: both were written before the launch."""
    try:
        return bound_lifetime(datetime.fromisoformat(tags[DEADLINE]) - datetime.fromisoformat(tags[CREATED]))
    except (KeyError, ValueError, TypeError):
        return DEFAULT_TIME_LIMIT
