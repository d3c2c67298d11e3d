"""The result of a provider's sweep: machines, and what runs have besides, in the whole account."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.core.machine import Machine

DATA_VOLUME = "data volume"
"""The `kind` of a data volume, at every provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that a run has besides machines, found by its tag.

    Attributes:
        kind: in the provider's terms: `data volume`, `security group`, `firewall`, `role`, `schedule`, `secret`, `tag`.
        run_id: the run in its tag; for a data volume, the run that used it last.
        created_at: None if the provider doesn't tell.
        usd_per_hour: its own price; 0 for nothing.
        id: a data volume's id at the provider, which its name ends with in parentheses; empty for other things.
        kept: `release` leaves it in place, because the job asked for that; it continues to bill.
        is_secret: it holds a secret, which only a machine that boots needs.
    """

    kind: str
    name: str
    run_id: str
    region: str = ""
    created_at: datetime | None = None
    usd_per_hour: Decimal = Decimal(0)
    id: str = ""
    kept: bool = False
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenPart:
    """A part of the account that couldn't be listed: one kind of resource, in one place.

    Attributes:
        what: describes the part and the reason, in one line.
        may_bill: what wasn't listed may cost money; a role or a schedule doesn't.
    """

    what: str
    may_bill: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Everything of kedge's at a provider.

    Attributes:
        machines: those that aren't gone.
        unseen: the parts that couldn't be listed; the rest of the sweep is complete without them.
    """

    machines: tuple[Machine, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()
