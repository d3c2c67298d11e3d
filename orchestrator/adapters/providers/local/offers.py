"""What this computer offers: itself, at no price, or at one to rehearse with."""

from __future__ import annotations

from decimal import Decimal

from orchestrator.adapters.providers.local.hardware import Computer
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators, Offer

NAME = "local"


def refuse_unknown(resources: Resources) -> None:
    """Refuse the wishes that only a cloud can grant.

    Raises:
        BadRequestError: there is one.
    """
    wishes = {
        "use_spot": "true" if resources.use_spot else None,
        "image_id": resources.image_id,
        "regions": next((region for region in resources.regions if region != NAME), None),
        "zone": resources.zone if resources.zone != NAME else None,
    }
    wishes["disk_throughput"] = str(resources.disk_mibps or "") or None
    wishes["disk_iops"] = str(resources.disk_iops or "") or None
    wishes["volumes"] = ", ".join(volume.name for volume in resources.volumes) or None
    asked = {wish: value for wish, value in wishes.items() if value is not None}
    for wish, value in asked.items():
        raise BadRequestError(
            f"the local provider knows no {wish}: {value}",
            why="a local machine runs on this computer as it is",
            fix=f"leave {wish} out, or choose a cloud with --provider",
        )


def plan_offers(computer: Computer, resources: Resources) -> tuple[Offer, ...]:
    """Return this computer as one offer, or nothing where it doesn't fit the wishes."""
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
    """Name this computer with the GPUs that a machine uses of it: `local`, `local-h100x2`."""
    return f"{NAME}-{accelerators.name}x{accelerators.count}" if accelerators else NAME


def gpu_count(type_name: str) -> int:
    """Return how many GPUs such a name says."""
    _, _, count = type_name.removeprefix(f"{NAME}-").rpartition("x")
    return int(count) if count.isdigit() else 0


def _accelerators(computer: Computer, wish: Accelerators | None) -> Accelerators | None:
    """Return the GPUs as wished, as far as they are there; all of the first kind without a wish."""
    names = [gpu.name for gpu in computer.gpus]
    if wish is not None:
        return wish if names.count(wish.name) >= wish.count else None
    return Accelerators(name=names[0], count=names.count(names[0])) if names else None


def _fits(offer: Offer, resources: Resources) -> bool:
    return (
        (resources.accelerators is None or offer.accelerators is not None)
        and resources.instance_type in (None, NAME, offer.instance_type)
        and (resources.disk_gib or 0) <= offer.disk_gib
    )
