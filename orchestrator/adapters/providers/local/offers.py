"""Offers this computer: at no price, or at the price of a rehearsal."""

from __future__ import annotations

from decimal import Decimal

from orchestrator.adapters.providers.local.hardware import Computer
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators, Offer

NAME = "local"


def refuse_unknown(resources: Resources) -> None:
    """Refuse requirements that only a cloud can fulfil.

    Raises:
        BadRequestError: there is such a requirement.
    """
    requirements = {
        "use_spot": "true" if resources.use_spot else None,
        "image_id": resources.image_id,
        "regions": next((region for region in resources.regions if region != NAME), None),
        "zone": resources.zone if resources.zone != NAME else None,
    }
    requirements["disk_throughput"] = str(resources.disk_mibps or "") or None
    requirements["disk_iops"] = str(resources.disk_iops or "") or None
    requirements["volumes"] = ", ".join(volume.name for volume in resources.volumes) or None
    asked = {name: value for name, value in requirements.items() if value is not None}
    for name, value in asked.items():
        raise BadRequestError(
            f"the local provider knows no {name}: {value}",
            why="a local machine runs on this computer as it is",
            fix=f"leave {name} out, or choose a cloud with --provider",
        )


def plan_offers(computer: Computer, resources: Resources) -> tuple[Offer, ...]:
    """Return this computer as one offer; nothing if it doesn't fit."""
    accelerators = _accelerators(computer, resources.accelerators)
    offer = Offer(
        provider=NAME,
        region=NAME,
        zone="",
        instance_type=instance_type(accelerators),
        accelerators=accelerators,
        gpu_memory_gib=computer.gpus[0].memory_gib if accelerators else 0.0,
        cpus=computer.cpus,
        memory_gib=computer.memory_gib,
        disk_gib=computer.disk_gib,
        usd_per_hour=resources.usd_per_hour if resources.usd_per_hour is not None else Decimal(0),
    )
    return (offer,) if _fits(offer, resources) else ()


def instance_type(accelerators: Accelerators | None) -> str:
    """Return the type's name with the GPUs that a machine uses: `local`, `local-h100x2`."""
    return f"{NAME}-{accelerators.name}x{accelerators.count}" if accelerators else NAME


def gpu_count(type_name: str) -> int:
    """Return the number of GPUs in a type's name."""
    _, _, count = type_name.removeprefix(f"{NAME}-").rpartition("x")
    return int(count) if count.isdigit() else 0


def _accelerators(computer: Computer, wanted: Accelerators | None) -> Accelerators | None:
    """Return the required GPUs, as many as exist; all of the first kind if none are required."""
    names = [gpu.name for gpu in computer.gpus]
    if wanted is not None:
        return wanted if names.count(wanted.name) >= wanted.count else None
    return Accelerators(name=names[0], count=names.count(names[0])) if names else None


def _fits(offer: Offer, resources: Resources) -> bool:
    return (
        (resources.accelerators is None or offer.accelerators is not None)
        and resources.instance_type in (None, NAME, offer.instance_type)
        and (resources.disk_gib or 0) <= offer.disk_gib
    )
