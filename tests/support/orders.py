"""Makes offers and orders for tests in one line."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from orchestrator.core.job import Resources
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Offer

_OF_OFFER = frozenset(each.name for each in fields(Offer)) - {"disk_gib"}
_OF_RESOURCES = frozenset(each.name for each in fields(Resources)) - _OF_OFFER


def make_offer(provider: str, instance_type: str, region: str, **values: Any) -> Offer:
    """Return an offer with default values for everything that a test doesn't set."""
    plain: dict[str, Any] = {
        "zone": "",
        "accelerators": None,
        "gpu_memory_gib": 0,
        "cpus": 2,
        "memory_gib": 4,
        "disk_gib": 0,
        "usd_per_hour": Decimal(0),
    }
    return Offer(provider=provider, instance_type=instance_type, region=region, **plain | values)


def changed(order: MachineOrder, **changes: Any) -> MachineOrder:
    """Return a changed copy of an order, including values of its offer and its resources (`disk_gib`)."""
    offer = {name: value for name, value in changes.items() if name in _OF_OFFER}
    resources = {name: value for name, value in changes.items() if name in _OF_RESOURCES}
    own = {name: value for name, value in changes.items() if name not in _OF_OFFER | _OF_RESOURCES}
    return replace(order, offer=replace(order.offer, **offer), resources=replace(order.resources, **resources), **own)
