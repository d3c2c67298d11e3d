"""Adds up what creating machines has cost once, for filling their volumes; read from the recorded intents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.core.values.cost import Rental
from orchestrator.core.values.structs import decode_json

PAID_ONCE = """kind = 'CreateMachine' AND payload LIKE '%"once_usd":%' AND payload NOT LIKE '%"once_usd":"0"%'"""
"""Selects intents with such a cost, in SQL: hardly any has one, and `status` must stay quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidOnce:
    """The one-time cost of a machine, and when it last occurred."""

    usd: Decimal = Decimal(0)
    at: str = ""

    def as_rental(self, machine_id: str) -> Rental:
        """Return it as a rental, for a machine that was never created."""
        at = datetime.fromisoformat(self.at)
        return Rental(machine_id=machine_id, usd_per_hour=Decimal(0), since=at, until=at, once_usd=self.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    once_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Creation:
    """The needed part of `core.actions.CreateMachine`; all its offers have the same one-time cost."""

    offers: tuple[_Offer, ...]


def add_up(intents: Iterable[tuple[str, str, str]]) -> dict[str, PaidOnce]:
    """Add up intents, each given as machine id, action as JSON, and time.

    Each intent is an attempt at one offer and counts as having created the volumes again, even if it was refused before
    that: the sum is never too low.
    """
    paid: dict[str, PaidOnce] = {}
    for machine_id, action, at in intents:
        usd = decode_json(action, _Creation).offers[0].once_usd
        paid[machine_id] = PaidOnce(usd=paid.get(machine_id, PaidOnce()).usd + usd, at=at)
    return paid
