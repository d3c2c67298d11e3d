"""What a provider has of kedge's, wherever it is: machines, and what runs have besides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.core.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that a run has besides machines, found by its mark.

    Attributes:
        kind: in the provider's words: `data volume`, `security group`, `firewall`, `role`, `schedule`, `tag`.
        name: the provider's own name for it.
        run_id: whose mark it carries: of a data volume, the run that used it last.
        created_at: None where the provider doesn't tell.
        usd_per_hour: what it bills by itself; 0 for nothing.
        kept: `release` leaves it where it is, as the job said: it goes on billing, and somebody wants it.
    """

    kind: str
    name: str
    run_id: str
    region: str = ""
    created_at: datetime | None = None
    usd_per_hour: Decimal = Decimal(0)
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenPart:
    """A part of what a provider has that couldn't be listed: one kind of thing, in one place.

    Attributes:
        what: one line, with the reason.
        may_bill: what is there may cost money; a role or a schedule doesn't.
    """

    what: str
    may_bill: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Everything of kedge's that a provider has.

    Attributes:
        machines: those that aren't gone.
        unseen: what couldn't be listed: what is there isn't known, and hides nothing of the rest.
    """

    machines: tuple[Machine, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()
