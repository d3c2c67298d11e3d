"""Moto's EC2, looked at directly: what is running, what exists, where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, StateReason

from tests.cloudbox.aws_call import Call

ACCOUNT = DEFAULT_ACCOUNT_ID
"""The one account of the box."""

RUNNING = frozenset({"pending", "running"})
GONE = frozenset({"terminated", "shutting-down"})


def ec2(region: str) -> EC2Backend:
    """Return a region's EC2."""
    return ec2_backends[ACCOUNT][region]


def regions() -> list[tuple[str, EC2Backend]]:
    """Return the regions that somebody has called."""
    return list(ec2_backends[ACCOUNT].items())


def instances() -> Iterator[tuple[str, Instance]]:
    """Iterate over all instances, terminated ones too, with their regions."""
    for region, backend in regions():
        for instance in backend.all_instances():
            yield region, instance


def find_instance(instance_id: str) -> tuple[str, Instance]:
    """Find an instance in any region.

    Raises:
        LookupError: There is none with this id.
    """
    for region, instance in instances():
        if instance.id == instance_id:
            return region, instance
    raise LookupError(f"no instance {instance_id}")


def end_instance(instance: Instance, reason: str, message: str) -> None:
    """Terminate an instance for another reason than a call."""
    instance.terminate()
    _explain(instance, reason, message)


def stop_instance(instance: Instance, reason: str, message: str) -> None:
    """Stop an instance for another reason than a call."""
    instance.stop()
    _explain(instance, reason, message)


def market(instance: Instance) -> str:
    """Return how an instance was bought: spot or on-demand."""
    return "spot" if instance.lifecycle == "spot" else "on-demand"


def vcpus(instance_type: str) -> int:
    """Return the virtual CPUs of a type; 0 where it is unknown."""
    facts: dict[str, Any] = INSTANCE_TYPES.get(instance_type, {})
    return int(facts.get("VCpuInfo", {}).get("DefaultVCpus", 0))


def zones_of(instance_type: str, region: str) -> list[str]:
    """Return the zones of a region in which a type is offered, in order."""
    offers = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return sorted(offer["Location"] for offer in offers if offer["InstanceType"] == instance_type)


def zone_of_launch(call: Call) -> str | None:
    """Return the zone that a launch names, itself or by its subnet; None where it leaves the choice to AWS."""
    params = call.params
    if zone := params.get("Placement.AvailabilityZone"):
        return str(zone)
    subnet = params.get("SubnetId") or params.get("NetworkInterface.1.SubnetId")
    if not subnet:
        return None
    try:
        return str(ec2(call.region).get_subnet(subnet).availability_zone)
    except InvalidSubnetIdError:
        return None


def _explain(instance: Instance, reason: str, message: str) -> None:
    instance.state_reason = StateReason(f"{reason}: {message}", reason)
    instance._reason = reason
