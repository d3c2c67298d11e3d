"""What calls of EC2 need: one permission for each resource that a call names or makes, with that resource's tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.cloudbox.aws.permissions.evaluation import Need
from tests.cloudbox.aws.permissions.iam_needs import find_profile, has_spot_role, pass_role, spot_role
from tests.cloudbox.aws.wire.call import Call
from tests.cloudbox.aws.wire.moto_state import ACCOUNT, ec2

_OWNERLESS = ("image", "snapshot")
"""Kinds whose ARNs name no account."""

_MADE: Mapping[str, tuple[str, ...]] = {
    "RunInstances": ("instance", "network-interface", "volume"),
    "CreateVolume": ("volume",),
    "CreateSnapshot": ("snapshot",),
    "CreateSecurityGroup": ("security-group",),
    "CreatePlacementGroup": ("placement-group",),
}
"""What a call makes. fact: ec2-request-tags."""

_NAMED: Mapping[str, tuple[str, ...]] = {
    "TerminateInstances": ("InstanceId",),
    "AttachVolume": ("InstanceId", "VolumeId"),
    "DetachVolume": ("InstanceId", "VolumeId"),
    "DeleteVolume": ("VolumeId",),
    "CreateSnapshot": ("VolumeId",),
    "DeleteSnapshot": ("SnapshotId",),
    "CreateVolume": ("SnapshotId",),
    "CreateSecurityGroup": ("VpcId",),
    "DeleteSecurityGroup": ("GroupId",),
    "AuthorizeSecurityGroupIngress": ("GroupId",),
    "RevokeSecurityGroupIngress": ("GroupId",),
    "AuthorizeSecurityGroupEgress": ("GroupId",),
    "CreateTags": ("ResourceId",),
    "DeleteTags": ("ResourceId",),
}
"""The parameters that name what is there; each value is a need of its own.

fact: ec2-resource-tags. fact: ec2-volume-from-snapshot.
"""

_KINDS = {
    "i": "instance",
    "vol": "volume",
    "snap": "snapshot",
    "sg": "security-group",
    "subnet": "subnet",
    "vpc": "vpc",
    "ami": "image",
    "eni": "network-interface",
    "sir": "spot-instances-request",
}
"""Kinds of things by how their ids begin."""


def ec2_needs(call: Call) -> Iterator[Need]:
    """List what a call of EC2 needs; one that isn't in these tables needs its action on all resources."""
    made = _MADE.get(call.action, ())
    named = _named(call)
    tags = _request_tags(call)
    action = f"ec2:{call.action}"
    for kind in made:
        yield Need(action=action, resource=_arn(call, kind, "*"), context=_keys("Request", tags.get(kind, {})))
    for each in named:
        context = {**_keys("Resource", _tags(call, each)), **_tag_keys(call)}
        yield Need(action=action, resource=_arn(call, _kind(each), each), context=context)
    group = call.params.get("GroupName") if call.action == "DeletePlacementGroup" else None
    if group := group or call.params.get("Placement.GroupName"):
        yield Need(
            action=action,
            resource=_arn(call, "placement-group", str(group)),
            context=_keys("Resource", _tags(call, str(group))),
        )
    if call.action == "RunInstances":
        yield from _launch_needs(call)
    elif not made and not named and not group:
        yield Need(action=action)
    for kind, given in tags.items():
        # fact: ec2-tag-on-create.
        context = {"ec2:CreateAction": call.action, **_keys("Request", given)}
        yield Need(action="ec2:CreateTags", resource=_arn(call, kind, "*"), context=context)


def _launch_needs(call: Call) -> Iterator[Need]:
    """List what a launch needs of what is there: image, network, and the right to hand its role to EC2."""
    if call.spot:
        yield Need(action="ec2:RunInstances", resource=_arn(call, "spot-instances-request", "*"))
        if not has_spot_role():
            yield spot_role()
    subnet = call.params.get("NetworkInterface.1.SubnetId") or call.params.get("SubnetId")
    if not subnet:
        yield Need(action="ec2:RunInstances", resource=_arn(call, "subnet", "subnet-of-the-default-vpc"))
    profile = find_profile(str(call.params.get("IamInstanceProfile.Name", "")))
    if profile and profile.roles:
        # fact: ec2-launch-passes-role.
        yield pass_role(profile.roles[0].arn, "ec2.amazonaws.com")


def _named(call: Call) -> list[str]:
    """Return the ids of what a call names."""
    if call.action == "RunInstances":
        single = [call.params.get(name) for name in ("ImageId", "NetworkInterface.1.SubnetId", "SubnetId")]
        groups = (*call.listed("NetworkInterface.1.SecurityGroupId"), *call.listed("SecurityGroupId"))
        return [str(each) for each in (*single, *groups) if each]
    names = _NAMED.get(call.action, ())
    values = [each for name in names for each in (call.params.get(name), *call.listed(name)) if each]
    if "VpcId" in names and not values:
        # Without one it is the default VPC that the group is made in.
        values = ["vpc-default"]
    return [str(each) for each in values]


def _kind(name: str) -> str:
    return _KINDS[name.partition("-")[0]]


def _arn(call: Call, kind: str, name: str) -> str:
    owner = "" if kind in _OWNERLESS else ACCOUNT
    return f"arn:aws:ec2:{call.region}:{owner}:{kind}/{name}"


def _tags(call: Call, name: str) -> Mapping[str, str]:
    """Return the tags of what is there; none of what isn't."""
    return dict(ec2(call.region).tags.get(name, {}))


def _request_tags(call: Call) -> dict[str, dict[str, str]]:
    """Return the tags that a request gives to each kind of thing."""
    found: dict[str, dict[str, str]] = {}
    for name, kind in call.params.items():
        number, _, rest = name.removeprefix("TagSpecification.").partition(".")
        if name.startswith("TagSpecification.") and rest == "ResourceType":
            tags = f"TagSpecification.{number}.Tag."
            found[kind] = {
                call.params[each]: call.params[f"{each.removesuffix('Key')}Value"]
                for each in call.params
                if each.startswith(tags) and each.endswith(".Key")
            }
    return found


def _tag_keys(call: Call) -> dict[str, str]:
    """Return the keys of the tags that a CreateTags writes; several are one text, which equals no single key.

    fact: ec2-tag-keys.
    """
    keys = sorted(value for name, value in call.params.items() if name.startswith("Tag.") and name.endswith(".Key"))
    return {"aws:TagKeys": " ".join(keys)} if call.action == "CreateTags" and keys else {}


def _keys(of: str, tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:{of}Tag/{key}": value for key, value in tags.items()}
