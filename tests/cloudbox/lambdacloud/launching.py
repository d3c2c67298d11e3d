"""Checks a launch request, and creates its instance.

The order of the checks and the sentences of refusals are invented: clients should rely on the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from tests.cloudbox.lambdacloud.account import Account
from tests.cloudbox.lambdacloud.catalogue import Image, InstanceType, default_family
from tests.cloudbox.lambdacloud.errors import LambdaError, invalid, missing
from tests.cloudbox.lambdacloud.faults import LambdaFault
from tests.cloudbox.lambdacloud.state import Instance, SshKey, new_id
from tests.cloudbox.machines.addresses import AddressPool

# fact: lambda-user-data-limit
_MOST_USER_DATA_BYTES = 1_000_000
_MOST_RULES = 20
_FIELDS = frozenset(
    (
        *("region_name", "instance_type_name", "ssh_key_names", "file_system_names", "file_system_mounts", "hostname"),
        *("name", "image", "user_data", "tags", "firewall_rulesets"),
    )
)


def launch(account: Account, addresses: AddressPool, body: Mapping[str, Any]) -> Instance:
    """Launch the one instance that the body describes, even if it was launched before. fact: lambda-no-idempotency.

    Raises:
        LambdaError: the request is invalid, or something that it names is not available.
    """
    if unknown := sorted(body.keys() - _FIELDS):
        # `quantity` is one of them: fact: lambda-no-quantity. Only this box is known to refuse the others.
        raise invalid(f"unknown parameters: {', '.join(unknown)}")
    if len((body.get("user_data") or "").encode()) > _MOST_USER_DATA_BYTES:
        raise invalid("user_data must be at most 1 MB")
    key, kind = _key(account, body), account.types.get(body["instance_type_name"])
    region = body["region_name"]
    if kind is None:
        raise missing("instance type")
    mounts = _mounts(account, body, region)
    rulesets = _rulesets(account, body, region)
    image = _image(account, body.get("image"), region, kind)
    _check_tags(body)
    if sum(one.bills() and not one.is_foreign for one in account.instances.values()) >= account.settings.instance_limit:
        raise LambdaError("global/quota-exceeded")
    # A listed type may be refused a moment later. fact: lambda-capacity-is-advisory
    if region not in kind.regions or (kind.name, region) in account.sold_out:
        raise LambdaError("instance-operations/launch/insufficient-capacity")
    now, settings, address = account.clock.now(), account.settings, addresses.take()
    instance = Instance(
        id=new_id(),
        name=body.get("name", ""),
        region=region,
        type=kind,
        image=image,
        address=address,
        private_address=f"10.19.{'.'.join(address.split('.')[2:])}",
        created_at=now,
        address_at=now + settings.address_seconds,
        active_at=now + settings.activation_seconds,
        # A copy: the instance keeps this key, even if it is deleted or replaced by another of the same name.
        key=replace(key),
        hostname=body.get("hostname", ""),
        user_data=body.get("user_data") or "",
        tags=[dict(tag) for tag in body.get("tags") or ()],
        ruleset_ids=rulesets,
        mounts=mounts,
    )
    account.instances[instance.id] = instance
    account.issued.add(instance.jupyter_token)
    return instance


def change(account: Account, wanted: str, fault: LambdaFault) -> None:
    """Apply a fault to an instance that was just launched."""
    instance = account.instances[wanted]
    if fault.effect == "stuck":
        instance.active_at = inf
    else:
        instance.becomes, instance.becomes_at = fault.becomes, account.clock.now() + fault.seconds


def _key(account: Account, body: Mapping[str, Any]) -> SshKey:
    names = body["ssh_key_names"]
    if len(names) != 1:
        raise invalid("exactly one SSH key must be specified")
    found = [key for key in account.keys.values() if key.name == names[0] and account.clock.now() >= key.accepted_at]
    if not found:
        raise missing("SSH key")
    return found[0]


def _image(account: Account, wanted: Mapping[str, str] | None, region: str, kind: InstanceType) -> Image:
    wanted = wanted or {"family": default_family(region)}
    if len(wanted) != 1:
        raise invalid("image must have an id or a family")
    for image in account.images:
        if image.region == region and (wanted.get("id") == image.id or wanted.get("family") == image.family):
            if "family" in wanted and image.architecture != kind.architecture:
                continue
            return image
    raise missing("image")


def _mounts(account: Account, body: Mapping[str, Any], region: str) -> dict[str, str]:
    mounts = {each["file_system_id"]: each["mount_point"] for each in body.get("file_system_mounts") or ()}
    for name in body.get("file_system_names") or ():
        found = [each for each in account.filesystems.values() if each.name == name]
        if not found:
            raise missing("filesystem")
        mounts.setdefault(found[0].id, f"/lambda/nfs/{name}")
    for each in mounts:
        if each not in account.filesystems:
            raise missing("filesystem")
        if account.filesystems[each].region != region:
            raise LambdaError("instance-operations/launch/file-system-in-wrong-region")
    return mounts


def _rulesets(account: Account, body: Mapping[str, Any], region: str) -> list[str]:
    wanted = [each["id"] for each in body.get("firewall_rulesets") or ()]
    if any(each not in account.rulesets or account.rulesets[each].region != region for each in wanted):
        raise missing("firewall ruleset")
    # fact: lambda-many-rules-fail-launches
    if sum(len(account.rulesets[each].rules) for each in wanted) > _MOST_RULES:
        raise invalid("too many firewall rules")
    return wanted


def _check_tags(body: Mapping[str, Any]) -> None:
    """Refuse a tag key that is given twice: nothing says that it is allowed."""
    keys = [tag["key"] for tag in body.get("tags") or ()]
    if len(keys) != len(set(keys)):
        raise invalid("tag keys must be unique")
