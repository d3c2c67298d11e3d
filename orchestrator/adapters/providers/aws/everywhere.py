"""Everything of kedge's in an account, in every region that is enabled for it; tags say whose it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws import schedule
from orchestrator.adapters.providers.aws.closed import why_closed
from orchestrator.adapters.providers.aws.identity import list_roles
from orchestrator.adapters.providers.aws.prices import HOURS_PER_MONTH
from orchestrator.adapters.providers.aws.recorded import find_untagged
from orchestrator.adapters.providers.aws.sweep import EVERY_MACHINE, Found, find_in
from orchestrator.adapters.providers.aws.tags import AT_END, CREATED, RUN, VOLUME, read_tags
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd
from orchestrator.core.sweep import Leftover, UnseenPart

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import SecurityGroupTypeDef, VolumeTypeDef
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

    from orchestrator.adapters.providers.aws.record import MachineRecord
    from orchestrator.adapters.providers.aws.session import AwsSession

_AT_ONCE = 16
_GP3_USD_PER_GIB_MONTH = Decimal("0.08")
"""Of the list in us-east-1, read in November 2026; elsewhere up to a half more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """What the account has.

    Attributes:
        unseen: what couldn't be listed.
    """

    instances: tuple[Found, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()


def find_everything(session: AwsSession, known: Collection[str], records: Iterable[MachineRecord]) -> Everything:
    """Look through all enabled regions at once, and through what belongs to none.

    Each kind of thing is looked for by itself: one that can't be listed hides none of the others.

    Args:
        session: the way to AWS.
        known: regions in which there may be something: these are looked at too, and one of them that is closed to the
            account may bill. Any other closed region can't.
        records: of this laptop's machines, which are found by their ids where their tags are gone.

    Raises:
        KedgeError: AWS doesn't list its regions.
    """
    # The SDK's clients may be shared by threads, its session may not: they are made here.
    looks = [_Look(partial(_see_roles, session.client("iam")), may_bill=False)]
    for region in _all_regions(session, known):
        ec2, scheduler = session.client("ec2", region), session.client("scheduler", region)
        unknown = "" if region in known else region
        looks += [
            _Look(partial(_see_instances, ec2), unknown),
            _Look(partial(_see_volumes, ec2), unknown),
            _Look(partial(_see_groups, ec2), unknown, may_bill=False),
            _Look(partial(_see_schedules, scheduler), unknown, may_bill=False),
        ]
    tagged = _look_at_once(looks)
    untagged = _Look(lambda: Everything(instances=tuple(find_untagged(session, records, tagged.instances))))
    return _join([tagged, untagged()])


def find_machines(session: AwsSession, known: Collection[str]) -> Everything:
    """Look for machines only, by their tags; the arguments and errors are those of `find_everything`."""
    return _look_at_once(
        [
            _Look(partial(_see_instances, session.client("ec2", region)), "" if region in known else region)
            for region in _all_regions(session, known)
        ]
    )


def _all_regions(session: AwsSession, known: Collection[str]) -> Sequence[str]:
    return sorted({*session.regions(), *known})


def _look_at_once(looks: Sequence[_Look]) -> Everything:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return _join(list(pool.map(lambda look: look(), looks)))


def _join(found: Sequence[Everything]) -> Everything:
    return Everything(
        instances=tuple(each for part in found for each in part.instances),
        leftovers=tuple(each for part in found for each in part.leftovers),
        # A region that is closed says so once.
        unseen=tuple(dict.fromkeys(line for part in found for line in part.unseen)),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at one kind of thing in one place.

    Attributes:
        unknown: the region, where nothing is known to be in it; else empty.
        may_bill: such things cost money.
    """

    see: Callable[[], Everything]
    unknown: str = ""
    may_bill: bool = True

    def __call__(self) -> Everything:
        try:
            return self.see()
        except KedgeError as err:
            if self.unknown and (closed := why_closed(err)):
                what = f"{self.unknown} {closed}, and this computer has no record of anything there"
                return Everything(unseen=(UnseenPart(what=what, may_bill=False),))
            return Everything(unseen=(UnseenPart(what=f"{err.what}: {err.why}", may_bill=self.may_bill),))


def _see_roles(iam: IAMClient) -> Everything:
    return Everything(
        leftovers=tuple(Leftover(kind="role", name=name, run_id=run_id) for name, run_id in list_roles(iam))
    )


def _see_instances(ec2: EC2Client) -> Everything:
    return Everything(instances=tuple(find_in(ec2, EVERY_MACHINE)))


def _see_volumes(ec2: EC2Client) -> Everything:
    return Everything(leftovers=tuple(_see_volume(volume, ec2.meta.region_name) for volume in _volumes(ec2)))


def _see_groups(ec2: EC2Client) -> Everything:
    return Everything(leftovers=tuple(_see_group(group, ec2.meta.region_name) for group in _groups(ec2)))


def _see_schedules(scheduler: EventBridgeSchedulerClient) -> Everything:
    region = scheduler.meta.region_name
    return Everything(leftovers=tuple(_see_schedule(*guard, region) for guard in schedule.list_machines(scheduler)))


def _volumes(ec2: EC2Client) -> list[VolumeTypeDef]:
    try:
        pages = ec2.get_paginator("describe_volumes").paginate(Filters=[{"Name": "tag-key", "Values": [VOLUME]}])
        listed = [volume for page in pages for volume in page["Volumes"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"data volumes in {ec2.meta.region_name} can't be listed") from err
    return [volume for volume in listed if RUN in read_tags(volume.get("Tags"))]


def _groups(ec2: EC2Client) -> list[SecurityGroupTypeDef]:
    try:
        pages = ec2.get_paginator("describe_security_groups").paginate(Filters=[{"Name": "tag-key", "Values": [RUN]}])
        return [group for page in pages for group in page["SecurityGroups"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"security groups in {ec2.meta.region_name} can't be listed") from err


def _see_volume(volume: VolumeTypeDef, region: str) -> Leftover:
    tags = read_tags(volume.get("Tags"))
    ends = tags.get(AT_END) in (AtEnd.DELETE, AtEnd.SNAPSHOT) and CREATED in tags
    return Leftover(
        kind="data volume",
        name=f"{tags[VOLUME]} ({volume['VolumeId']})",
        run_id=tags[RUN],
        region=region,
        created_at=volume["CreateTime"],
        usd_per_hour=volume["Size"] * _GP3_USD_PER_GIB_MONTH / HOURS_PER_MONTH,
        kept=not ends,
    )


def _see_group(group: SecurityGroupTypeDef, region: str) -> Leftover:
    run_id = read_tags(group.get("Tags"))[RUN]
    return Leftover(kind="security group", name=group.get("GroupId", ""), run_id=run_id, region=region)


def _see_schedule(name: str, machine_id: str, region: str) -> Leftover:
    return Leftover(kind="schedule", name=name, run_id=machine_id.rpartition("-m")[0], region=region)
