"""Placement groups, which moto's EC2 lacks: made, listed, launched into, deleted once their instances have ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

from moto.ec2.models.instance_types import INSTANCE_TYPES
from werkzeug.wrappers import Response

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_EC2 = "http://ec2.amazonaws.com/doc/2016-11-15/"
_INSTANCE = re.compile(r"<instanceId>(i-[0-9a-f]+)</instanceId>")


@dataclass
class Group:
    """One placement group."""

    name: str
    strategy: str
    tags: dict[str, str]
    members: set[str] = field(default_factory=set)


class PlacementBook:
    """The placement groups of each region."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Group] = {}

    def reset(self) -> None:
        """Forget all groups."""
        self._groups.clear()

    def holds(self, instance_id: str) -> bool:
        """Tell whether an instance is in a group."""
        return any(instance_id in group.members for group in self._groups.values())

    def create(self, call: Call) -> Response:
        """Make a group; names are unique in a region. fact: aws-placement-names."""
        name = str(call.params.get("GroupName", ""))
        if (call.region, name) in self._groups:
            raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
        group = Group(name=name, strategy=str(call.params.get("Strategy", "cluster")), tags=_tags(call))
        self._groups[call.region, name] = group
        # Where permissions look for the tags of what is there.
        moto_state.ec2(call.region).tags[name] = dict(group.tags)
        return _answer("CreatePlacementGroup", f"<return>true</return><placementGroup>{_show(group)}</placementGroup>")

    def delete(self, call: Call) -> Response:
        """Delete a group that no instance is in. fact: aws-placement-in-use."""
        name = str(call.params.get("GroupName", ""))
        group = self._find(call.region, name)
        if group.members & _living():
            raise AwsError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
        del self._groups[call.region, name]
        moto_state.ec2(call.region).tags.pop(name, None)
        return _answer("DeletePlacementGroup", "<return>true</return>")

    def describe(self, call: Call) -> Response:
        """List groups by the filters that kedge uses."""
        wanted = call.filters()
        found = [
            group for (region, _), group in self._groups.items() if region == call.region and _matches(group, wanted)
        ]
        items = "".join(f"<item>{_show(group)}</item>" for group in found)
        return _answer("DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>")

    def check(self, call: Call) -> None:
        """Refuse a launch into a group that isn't there, or of a type that can't be in it. fact: aws-type-network.

        Raises:
            AwsError: It is refused.
        """
        kind = str(call.params.get("InstanceType", ""))
        about: dict[str, Any] = INSTANCE_TYPES.get(kind, {})
        if "efa" in _interfaces(call) and not about.get("NetworkInfo", {}).get("EfaSupported"):
            raise AwsError("InvalidParameterCombination", f"EFA interfaces are not supported on {kind}")
        if "efa" in _interfaces(call) and not _takes_efa(
            about, str(call.params.get("NetworkInterface.1.NetworkCardIndex", 0))
        ):
            # fact: aws-efa-cards. Nobody has published the answer: the unkind one is an error that ends the launch.
            raise AwsError(
                "InvalidParameterCombination", f"EFA interfaces are not supported on network card 0 of {kind}"
            )
        if "efa" in _interfaces(call) and not call.params.get("NetworkInterface.1.SubnetId"):
            # fact: aws-efa-needs-subnet
            raise AwsError("MissingParameter", "An EFA interface needs a subnet.")
        if name := call.params.get("Placement.GroupName"):
            group = self._find(call.region, str(name))
            if group.strategy not in about.get("PlacementGroupInfo", {}).get("SupportedStrategies", ()):
                raise AwsError(
                    "InvalidParameterCombination",
                    f"{group.strategy} placement groups are not supported by the '{kind}' instance type",
                )

    def keep(self, call: Call, answer: str) -> None:
        """Put the instances of a launch into its group."""
        if name := call.params.get("Placement.GroupName"):
            self._groups[call.region, str(name)].members |= set(_INSTANCE.findall(answer))

    def _find(self, region: str, name: str) -> Group:
        group = self._groups.get((region, name))
        if group is None:
            raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        return group


def _interfaces(call: Call) -> set[str]:
    return {str(value) for key, value in call.params.items() if key.endswith(".InterfaceType")}


def _takes_efa(about: Mapping[str, Any], card: str) -> bool:
    """Tell whether a network card of a type takes EFA interfaces; moto has AWS's own descriptions."""
    cards = about["NetworkInfo"]["NetworkCards"]
    return any(str(each["NetworkCardIndex"]) == card and "efa" in each["InterfaceTypes"] for each in cards)


def _living() -> set[str]:
    return {instance.id for _, instance in moto_state.instances() if instance.state != "terminated"}


def _matches(group: Group, wanted: Mapping[str, list[str]]) -> bool:
    shown = {"group-name": {group.name}, "tag-key": set(group.tags)}
    shown |= {f"tag:{key}": {value} for key, value in group.tags.items()}
    return all(shown.get(name, set()) & set(values) for name, values in wanted.items())


def _tags(call: Call) -> dict[str, str]:
    prefix = "TagSpecification.1.Tag."
    return {
        str(value): str(call.params[f"{key.removesuffix('Key')}Value"])
        for key, value in call.params.items()
        if key.startswith(prefix) and key.endswith(".Key")
    }


def _show(group: Group) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(text)}</value></item>" for key, text in group.tags.items()
    )
    return (
        f"<groupName>{escape(group.name)}</groupName><state>available</state><strategy>{group.strategy}</strategy>"
        f"<groupId>pg-{uuid4().hex[:17]}</groupId><tagSet>{tags}</tagSet>"
    )


def _answer(action: str, content: str) -> Response:
    body = f'<{action}Response xmlns="{_EC2}"><requestId>{uuid4()}</requestId>{content}</{action}Response>'
    return Response(body, content_type="text/xml")
