"""What the attempts at machines have paid once, for filling their volumes: read from the intents to create them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import msgspec

from orchestrator.core.cost import Rental

PAID_ONCE = """kind = 'CreateMachine' AND payload LIKE '%"once_usd":%' AND payload NOT LIKE '%"once_usd":"0"%'"""
"""Which intents tell of such a payment, in SQL: hardly any does, and `status` is to stay quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidOnce:
    """What was paid for one machine, and when last."""

    usd: Decimal = Decimal(0)
    at: str = ""

    def as_rental(self, machine_id: str) -> Rental:
        """Return it as the cost of a machine that could not be had in the end."""
        at = datetime.fromisoformat(self.at)
        return Rental(machine_id=machine_id, usd_per_hour=Decimal(0), since=at, until=at, once_usd=self.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    once_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Creation:
    """As much of `core.actions.CreateMachine` as is needed; all its offers cost the same once."""

    offers: tuple[_Offer, ...]


def add_up(intents: Iterable[tuple[str, str, str]]) -> dict[str, PaidOnce]:
    """Add up intents, each with its machine, its action as JSON and its time.

    Each is an attempt at one offer, and has made the volumes anew, unless it was refused before: nobody counts less.
    """
    paid: dict[str, PaidOnce] = {}
    for machine_id, action, at in intents:
        usd = msgspec.json.decode(action, type=_Creation).offers[0].once_usd
        paid[machine_id] = PaidOnce(usd=paid.get(machine_id, PaidOnce()).usd + usd, at=at)
    return paid
