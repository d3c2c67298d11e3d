"""Moto's EC2, looked at directly: what is running, what exists, where."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models import EC2Backend, ec2_backends, elastic_network_interfaces
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceState, StateReason

from tests.cloudbox.aws.wire.call import Call

ACCOUNT = DEFAULT_ACCOUNT_ID
"""The one account of the box."""

ENABLED = frozenset(
    {
        *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"),
        *("eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3"),
        *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    }
)
"""The regions that every account has without enabling them.

fact: aws-default-regions; fact: regions-of-one-partition
"""

RUNNING = frozenset({"pending", "running"})
GONE = frozenset({"terminated", "shutting-down"})

_CODES = {"pending": 0, "running": 16, "shutting-down": 32}
_END = Instance.terminate


def ec2(region: str) -> EC2Backend:
    """Return a region's EC2."""
    return ec2_backends[ACCOUNT][region]


def regions() -> list[tuple[str, EC2Backend]]:
    """Return the regions that somebody has called."""
    return list(ec2_backends[ACCOUNT].items())


def keep_first_regions() -> None:
    """List the regions that a new account has: none of China or GovCloud, and none that has to be enabled."""
    known = RegionsAndZonesBackend.regions
    RegionsAndZonesBackend.regions = [each for each in known if each.name in ENABLED]


def take_addresses(take: Callable[[], str]) -> None:
    """Give instances public addresses from elsewhere."""
    elastic_network_interfaces.random_public_ip = take  # type: ignore[attr-defined]


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


def take_ends(begin: Callable[[Instance], InstanceState]) -> None:
    """Have instances ended by somebody else, who says in which state they were before."""

    def terminate(self: Instance) -> InstanceState:
        return begin(self)

    Instance.terminate = terminate  # type: ignore[method-assign]


def show(instance: Instance, state: str) -> None:
    """Have an instance seen in another state."""
    instance._state.name, instance._state.code = state, _CODES[state]


def begin_end(
    instance: Instance,
    reason: str = "Client.UserInitiatedShutdown",
    message: str = "User initiated shutdown",
) -> InstanceState:
    """Begin to end an instance, as a call does or for another reason, if nobody has; returns the state before."""
    before = copy.copy(instance._state)
    if instance.state not in GONE:
        show(instance, "shutting-down")
        _explain(instance, reason, message)
    return before


def finish_end(instance: Instance) -> None:
    """Terminate an instance whose end was begun, if nobody has; the reason stays."""
    if instance.state != "shutting-down":
        return
    why = instance.state_reason, instance._reason
    _END(instance)
    instance.state_reason, instance._reason = why


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


def gpus(instance_type: str) -> int:
    """Return how many GPUs a type has."""
    facts: dict[str, Any] = INSTANCE_TYPES.get(instance_type, {})
    return sum(int(gpu["Count"]) for gpu in facts.get("GpuInfo", {}).get("Gpus", []))


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
