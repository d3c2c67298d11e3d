"""Run a whole life at AWS, and collect every request and record of it for the golden files."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import AtEnd, VolumeSpec
from orchestrator.core.machine import MachineOrder
from orchestrator.core.ports import Provider
from orchestrator.core.values.site import Site
from tests.adapters.aws.world import RUN, AwsWorld
from tests.adapters.cloud.goldens import AGENT, name_all, read_user_data, state_files
from tests.cloudbox.aws.box import REGION, Box, Seen

FAR = "eu-west-1"
SEEDED_RUN = "seeded-1121-cd34"
GROUPS = {REGION: "sg-0123456789abcdef0", FAR: "sg-0fedcba9876543210"}
"""Of the seeded run, which has got all that it needs besides machines."""

_LATER = timedelta(minutes=5)
_READS = ("Describe", "Get", "List", "Head")
_SITE = Site(tags=(("cost-center", "42"),))
_SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20, at_end=AtEnd.SNAPSHOT)


@dataclass(frozen=True, kw_only=True)
class AwsLife:
    """What is compared with the golden files.

    Attributes:
        requests: all requests that change something, by action.
        tokens: the idempotency tokens of the requests that have one, by action and number.
        ids: the value of each placeholder: ids that the cloud assigns, and times.
        user_data: the user-data of the first machine.
        is_compressed: whether its user-data is gzip without a date.
        run_record: the run's record while its machines lived.
        files: the files in the state folder at that time.
    """

    requests: Mapping[str, Sequence[Any]]
    tokens: Mapping[str, str]
    ids: Mapping[str, str]
    user_data: str
    is_compressed: bool
    run_record: str
    files: Sequence[str]


def order(aws: AwsWorld, number: int, **changes: Any) -> MachineOrder:
    """Order a machine with a fixed agent archive, so that changes of the agent do not matter."""
    return aws.order(number, agent_archive=AGENT, **changes)


def live(aws: AwsWorld, provider: Provider) -> AwsLife:
    """Create two machines, replace one of them, destroy all, and release the run."""
    api = aws.api
    api.set_states(pending_seconds=0, ending_seconds=600)
    first = provider.create(order(aws, 1, site=_SITE, disk_gib=50, volumes=(_SCANS,)))
    plain, is_compressed = _user_data(api, first.provider_id)
    spot = provider.create(order(aws, 2, site=_SITE, spot=True, max_usd_per_hour=Decimal("0.05")))
    files = state_files(aws.folder)
    run_record = (aws.folder / "aws" / "runs" / f"{RUN}.json").read_text()
    provider.destroy(spot.id)
    anew = provider.create(order(aws, 2))
    provider.destroy(first.id)
    provider.destroy(anew.id)
    api.finish_states()
    policy = api.client("iam").get_role_policy(RoleName=f"kedge-run-{RUN}", PolicyName="own-objects")
    provider.release(RUN)

    calls = api.calls()
    ids = {
        "<first>": first.provider_id,
        "<spot>": spot.provider_id,
        "<anew>": anew.provider_id,
        "<group>": json.loads(run_record)["groups"][REGION]["id"],
        "<volume>": next(call.params["VolumeId"] for call in calls if call.action == "AttachVolume"),
        "<image>": next(call.params["ImageId"] for call in calls if call.action == "RunInstances"),
    }
    # The box's own clock gives the creation times, from which the ends are counted.
    ends = {
        "<the first's end>": first.deadline_at + _LATER,
        "<the spot's end>": spot.deadline_at + _LATER,
        "<the new one's end>": anew.deadline_at + _LATER,
    }
    names = {found: name for name, found in ids.items()}
    names |= {f"at({end:%Y-%m-%dT%H:%M:%S})": "at(<its end>)" for end in ends.values()}
    requests = name_all(_requests(calls), names)
    # The box records only the beginning of long values.
    requests["iam PutRolePolicy"][0]["PolicyDocument"] = policy["PolicyDocument"]
    # AWS lists instances in any order.
    requests["ec2 TerminateInstances"].sort(key=str)
    serial = {ids["<volume>"].replace("-", ""): "<volume without its dash>"}
    return AwsLife(
        requests=requests,
        tokens=_tokens(calls),
        ids=ids | {name: end.isoformat() for name, end in ends.items()},
        user_data=read_user_data(plain, names | serial),
        is_compressed=is_compressed,
        run_record=name_all(run_record, names),
        files=files,
    )


def order_while_sold_out(
    aws: AwsWorld, provider: Provider, orders: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, str]:
    """Order machines for the seeded run while none are left, and return each request's token.

    Args:
        aws: the laptop and its account.
        provider: the laptop's provider; a new one would have to create its clients again.
        orders: by name, how each order differs from the default one.
    """
    runs = aws.folder / "aws" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    groups = {region: {"id": group, "ssh_from": aws.ssh_from} for region, group in GROUPS.items()}
    record = {"id": SEEDED_RUN, "account": "123456789012", "role": True, "groups": groups}
    (runs / f"{SEEDED_RUN}.json").write_text(json.dumps(record))
    with _sold_out(aws.api):
        return {name: _token_of(aws.api, provider, _seeded_order(aws, each)) for name, each in orders.items()}


def default_subnet(api: Box, zone: str) -> str:
    """Return the default subnet of a zone."""
    filters = [{"Name": "availability-zone", "Values": [zone]}, {"Name": "default-for-az", "Values": ["true"]}]
    found: str = api.client("ec2").describe_subnets(Filters=filters)["Subnets"][0]["SubnetId"]
    return found


def _seeded_order(aws: AwsWorld, changes: Mapping[str, Any]) -> MachineOrder:
    known = {name: value for name, value in changes.items() if name not in {"machine", "subnets"}}
    site = Site(subnets=tuple(changes.get("subnets", ())))
    return order(aws, 1, id=f"{SEEDED_RUN}-m{changes.get('machine', 1)}", run_id=SEEDED_RUN, site=site, **known)


@contextmanager
def _sold_out(api: Box) -> Iterator[None]:
    api.fail_next("RunInstances", "InsufficientInstanceCapacity", times=None)
    yield
    api.clear_faults()


def _token_of(api: Box, provider: Provider, order: MachineOrder) -> str:
    try:
        provider.create(order)
    except NoCapacityError:
        token: str = api.calls("ec2", "RunInstances")[-1].params["ClientToken"]
        return token
    raise AssertionError("the box created a machine although it was sold out")


def _user_data(api: Box, instance_id: str) -> tuple[str, bool]:
    found = api.client("ec2").describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    content = base64.b64decode(found["UserData"]["Value"])
    plain = gzip.decompress(content)
    return plain.decode(), content == gzip.compress(plain, mtime=0)


def _requests(calls: Sequence[Seen]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for call in calls:
        if call.service != "s3" and not call.action.startswith(_READS):
            params = _nested(call.params)
            if "ClientToken" in params:
                params["ClientToken"] = "<token>"
            found.setdefault(f"{call.service} {call.action}", []).append(params)
    return {action: found[action] for action in sorted(found)}


def _tokens(calls: Sequence[Seen]) -> dict[str, str]:
    """Return the tokens of requests by action and number."""
    found: dict[str, str] = {}
    for action in ("CreateVolume", "RunInstances", "CreateSchedule"):
        sent = [call.params["ClientToken"] for call in calls if call.action == action]
        found |= {f"{action} {number}": token for number, token in enumerate(sent, 1)}
    return found


def _nested(params: Mapping[str, Any]) -> Any:
    """Nest parameters that the Query API flattens, such as `Tag.1.Key`; tags become a mapping."""
    tree: dict[str, Any] = {}
    for path, value in params.items():
        *folders, leaf = path.replace(".member.", ".").split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = value
    return _listed(tree)


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict) or not tree:
        return tree
    if not all(key.isdecimal() for key in tree):
        return {key: _listed(value) for key, value in tree.items()}
    items = [_listed(tree[key]) for key in sorted(tree, key=int)]
    is_tags = all(isinstance(item, dict) and item.keys() == {"Key", "Value"} for item in items)
    return {item["Key"]: item["Value"] for item in items} if is_tags else items
