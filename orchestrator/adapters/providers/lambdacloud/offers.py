"""Lists Lambda's offers: instance types with prices, in the regions that have them now."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.market import MachineType, OfferList, plan_offers, refuse_lacking
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.lambdacloud.api import Api, Sold
    from orchestrator.core.job import Resources

X86 = "x86_64"
SHORTEST = timedelta(minutes=1)
"""The shortest time billed. fact: lambda-billed-by-the-minute."""

# fact: lambda-types-are-a-map
_GPU = re.compile(r"(?P<name>[A-Z]+ ?[0-9]+[A-Z]*) \((?P<gib>\d+) GB.*\)")


class LambdaOffers:
    """Implements `OfferSource`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def offers(self, resources: Resources) -> OfferList:
        """List what is for sale now and fits, the cheapest first."""
        refuse_unsupported(resources)
        regions = self._api.regions() if resources.regions else ()
        types = [parse_type(each) for each in self._api.types().values() if _is_x86(each)]
        return OfferList(offers=plan_offers("lambda", types, resources, regions, SHORTEST))

    def refresh(self) -> str:
        """Refuse: each plan requests Lambda's prices."""
        raise BadRequestError("lambda has no snapshot of prices", why="they are asked for", fix="leave --refresh out")


def refuse_unsupported(resources: Resources) -> None:
    """Refuse spot machines, data volumes, zones and quick disks, which Lambda doesn't have; nothing is contacted."""
    refuse_lacking("lambda", resources)


def parse_type(sold: Sold) -> MachineType:
    """Parse an instance type. fact: lambda-prices."""
    kind = sold.instance_type
    found = _GPU.fullmatch(kind.gpu_description) if kind.specs.gpus else None
    name, gib = (found["name"].replace(" ", "").lower(), int(found["gib"])) if found else ("", 0)
    return MachineType(
        name=kind.name,
        # Job files distinguish the two types of A100.
        gpu="a100-80gb" if (name, gib) == ("a100", 80) else name,
        gpus=kind.specs.gpus,
        gpu_memory_gib=gib,
        cpus=kind.specs.vcpus,
        memory_gib=kind.specs.memory_gib,
        disk_gib=kind.specs.storage_gib,
        usd_per_hour=Decimal(kind.price_cents_per_hour) / 100,
        regions=tuple(each.name for each in sold.regions_with_capacity_available),
    )


def _is_x86(sold: Sold) -> bool:
    """Tell whether images and wheels fit; in older answers only the name tells."""
    return sold.instance_type.architecture in ("", X86) and "gh200" not in sold.instance_type.name
