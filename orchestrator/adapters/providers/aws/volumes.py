"""Data volumes: found by name, and made where there is none.

A volume is known by its tag `kedge-volume`. One that kedge made also carries `kedge-created`: only such a one may the
machine ever format, and only when it is blank: never one that was filled from a snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.boot import Origin
from orchestrator.adapters.patience import ask_again
from orchestrator.adapters.providers.aws.attaching import (
    DataVolume,
    await_free,
    is_unknown_volume,
    use_tags,
)
from orchestrator.adapters.providers.aws.closed import is_closed
from orchestrator.adapters.providers.aws.consistency import APPEARS_IN
from orchestrator.adapters.providers.aws.naming import token
from orchestrator.adapters.providers.aws.ordered import offer_of
from orchestrator.adapters.providers.aws.refusals import is_for_another_offer, translate_refusal
from orchestrator.adapters.providers.aws.restoring import as_request as from_snapshot
from orchestrator.adapters.providers.aws.tags import CREATED, RUN, VOLUME, read_tags, tag_specifications
from orchestrator.adapters.providers.aws.zones import as_request
from orchestrator.core.disk import LEAST_IOPS, LEAST_MIBPS
from orchestrator.core.errors import BadRequestError, KedgeError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import VolumeTypeDef

    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.job import Resources, VolumeSpec
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)


def place_volumes(resources: Resources, session: AwsSession) -> tuple[Resources, str | None]:
    """Look for the wished volumes: one that exists fixes the zone, and bills by its own size.

    Returns:
        The wishes with the sizes and speeds of the volumes that exist, and their zone; None where none exists.

    Raises:
        BadRequestError: they are in different zones, so that no machine can have them all.
    """
    if not resources.volumes:
        return resources, None
    found: dict[str, VolumeTypeDef] = {}
    for region in resources.regions or (session.region,):
        try:
            found |= find_volumes(session.client("ec2", region), [spec.name for spec in resources.volumes])
        except KedgeError as err:
            # Where nothing can be rented, no machine could use the volume either; listing offers says so.
            if not is_closed(err):
                raise
    zones = {name: volume["AvailabilityZone"] for name, volume in found.items()}
    if len(set(zones.values())) > 1:
        where = ", ".join(f"{name} in {zone}" for name, zone in sorted(zones.items()))
        raise BadRequestError(
            "these volumes can't be attached to one machine",
            why=f"they are in different zones: {where}",
            fix="choose a --region that has one of them, or copy one by a snapshot into the other's zone",
        )
    sized = tuple(_as_it_is(spec, found.get(spec.name)) for spec in resources.volumes)
    return replace(resources, volumes=sized), next(iter(zones.values()), None)


def find_volumes(ec2: EC2Client, names: Sequence[str]) -> Mapping[str, VolumeTypeDef]:
    """Find the volumes of these names in a region.

    Raises:
        KedgeError: AWS doesn't tell, or has two of one name.
    """
    try:
        pages = ec2.get_paginator("describe_volumes").paginate(
            Filters=[
                {"Name": f"tag:{VOLUME}", "Values": list(names)},
                {"Name": "status", "Values": ["creating", "available", "in-use"]},
            ]
        )
        listed = [volume for page in pages for volume in page["Volumes"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "data volumes can't be looked for") from err
    found: dict[str, VolumeTypeDef] = {}
    for volume in listed:
        name = read_tags(volume.get("Tags"))[VOLUME]
        if name in found:
            raise KedgeError(
                f"there are two data volumes called {name} in {ec2.meta.region_name}",
                why=f"{found[name]['VolumeId']} and {volume['VolumeId']} both carry the tag {VOLUME}={name}",
                fix="take the tag from the one that isn't meant",
            )
        found[name] = volume
    return found


def ready_volumes(ec2: EC2Client, order: MachineOrder, clock: Clock) -> tuple[DataVolume, ...]:
    """Find or make the order's volumes, and wait until each can be attached. No call where there are none.

    Raises:
        ConflictError: another machine has one.
        NoCapacityError: this zone or region doesn't take one; another may.
        KedgeError: AWS doesn't allow it.
    """
    if not order.volumes:
        return ()
    if not order.zone:
        raise BadRequestError("data volumes need a zone", why="a volume is in one zone", fix="choose one with --zone")
    found = find_volumes(ec2, [spec.name for spec in order.volumes])
    volumes: list[DataVolume] = []
    try:
        for number, spec in enumerate(order.volumes):
            volumes.append(_take_or_make(ec2, order, number, found.get(spec.name), clock))
        for volume in volumes:
            await_free(ec2, volume, order.run_id, clock)
    except KedgeError:
        drop_new(ec2, volumes, clock)
        raise
    return tuple(replace(volume, holder="") for volume in volumes)


def known_volumes(ec2: EC2Client, specs: Sequence[VolumeSpec]) -> tuple[DataVolume, ...]:
    """Return those of some volumes that are there, whoever has them. No call where none is wished for.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    if not specs:
        return ()
    found = find_volumes(ec2, [spec.name for spec in specs])
    return tuple(
        _data_volume(found[spec.name], spec, number) for number, spec in enumerate(specs) if spec.name in found
    )


def drop_new(ec2: EC2Client, volumes: Sequence[DataVolume], clock: Clock) -> None:
    """Delete the volumes that were made for an order which then could not be filled; nobody has used them."""
    for volume in volumes:
        if volume.is_new:
            try:
                ask_again(clock, APPEARS_IN, is_unknown_volume)(ec2.delete_volume, VolumeId=volume.id)
            except (ClientError, BotoCoreError) as err:
                _log.warning("data volume %s (%s) is left, unused: %s", volume.spec.name, volume.id, err)


def _as_it_is(spec: VolumeSpec, there: VolumeTypeDef | None) -> VolumeSpec:
    """Return what a volume is, where it exists: it bills by that, whatever the job says of a new one."""
    if there is None:
        return spec
    is_gp3 = there["VolumeType"] == "gp3"
    iops, mibps = (there.get("Iops"), there.get("Throughput")) if is_gp3 else (None, None)
    return replace(
        spec,
        size_gib=there["Size"],
        iops=iops or LEAST_IOPS,
        mibps=mibps or LEAST_MIBPS,
        snapshot_id=None,
        initialization_mibps=None,
    )


def _take_or_make(
    ec2: EC2Client, order: MachineOrder, number: int, there: VolumeTypeDef | None, clock: Clock
) -> DataVolume:
    spec = order.volumes[number]
    if there is not None:
        _refuse_elsewhere(there, order, spec)
        return _data_volume(there, spec, number)
    disk = spec.disk
    tags = {
        **dict(order.site.tags),
        **use_tags(order.run_id, spec),
        VOLUME: spec.name,
        CREATED: clock.now().isoformat(),
        "Name": spec.name,
    }
    try:
        made = ec2.create_volume(
            **as_request(order.zone),
            Size=spec.size_gib,
            VolumeType="gp3",
            Iops=disk.iops,
            Throughput=disk.mibps,
            Encrypted=True,
            **from_snapshot(spec),
            # For the SDK's own retries: one that was made for an earlier order may have been deleted since.
            ClientToken=token(order.id, order.zone, spec.name, tags[CREATED]),
            TagSpecifications=tag_specifications(tags, "volume"),
        )
    except (ClientError, BotoCoreError) as err:
        what = f"the data volume {spec.name} can't be made"
        if is_for_another_offer(err):
            raise translate_refusal(err, offer_of(order), what) from err
        raise translate(err, what) from err
    _log.info("made data volume %s (%s, %d GiB)", spec.name, made["VolumeId"], spec.size_gib)
    origin = Origin.RESTORED if spec.snapshot_id else Origin.MADE
    return DataVolume(id=made["VolumeId"], spec=spec, origin=origin, number=number, is_new=True, run_id=order.run_id)


def _data_volume(there: VolumeTypeDef, spec: VolumeSpec, number: int) -> DataVolume:
    tags = read_tags(there.get("Tags"))
    return DataVolume(
        id=there["VolumeId"],
        spec=spec,
        origin=_origin(there, tags),
        number=number,
        run_id=tags.get(RUN, ""),
        holder=next((each["InstanceId"] for each in there.get("Attachments", ())), ""),
    )


def _origin(there: VolumeTypeDef, tags: Mapping[str, str]) -> Origin:
    if CREATED not in tags:
        return Origin.FOUND
    # fact: ebs-volume-snapshot
    return Origin.RESTORED if there.get("SnapshotId") else Origin.MADE


def _refuse_elsewhere(there: VolumeTypeDef, order: MachineOrder, spec: VolumeSpec) -> None:
    if order.zone not in (there["AvailabilityZone"], there.get("AvailabilityZoneId")):
        raise BadRequestError(
            f"the data volume {spec.name} can't be attached in {order.zone}",
            why=f"it is in {there['AvailabilityZone']}",
            fix=f"say --zone {there['AvailabilityZone']}",
        )
