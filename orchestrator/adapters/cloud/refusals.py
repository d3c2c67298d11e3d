"""How a cloud's refusals are classified: the rows of its table, and their translation into kedge's errors.

A cloud's table (`refusal_table.py`; Lambda's is in its cloud_api.py) holds rows and nothing else. The first row that
matches counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.offer import Offer

_WHAT = "machine {id} can't be created"


class Reaction(StrEnum):
    """What kedge does about a refusal."""

    NEXT_POOL = "try the next offer"
    NEXT_ZONE = "try the next zone"
    NEXT_REGION = "try the next region"
    NEXT_QUOTA = "skip all offers that count against this quota in this region"
    NEVER_HERE = "skip all offers of this type"
    NEVER_AT_ALL = "skip all offers"
    RETRY = "send the request again, a few times, with the same token"
    NOT_YET = "send the request again for a minute: the cloud doesn't know yet what was just made"
    UNCLEAR = "send the request again with the same token, then look the machine up by its tag: it may exist"
    LOOK_UP = "look the machine up by its tag: another request may have created it"
    STOP = "stop"


_OF_THE_ORDER = frozenset(
    {Reaction.NEXT_POOL, Reaction.NEXT_ZONE, Reaction.NEXT_QUOTA, Reaction.NEVER_HERE, Reaction.NEVER_AT_ALL}
)
"""Reactions to refusals of the order itself: the cloud has none of it, or none for this account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One row: codes of a cloud that mean the same.

    Attributes:
        codes: as the cloud sends them; `*` stands for any ending.
        meaning: one line.
        remedy: what a person can do. `{id}`, `{type}`, `{region}` and `{provider}` are filled in.
        says: substrings of the message, in lower case; one of them must be in it. Empty if the code is enough.
        about: `says` in words, for people who read the table.
        our_fault: the request can't be carried out as written, or not by this account.
        what: the error's first line, with the same fields as `remedy`.
        why_is_said_only: the error's reason is the cloud's message, without `meaning` before it.
    """

    codes: tuple[str, ...]
    meaning: str
    reaction: Reaction
    remedy: str
    says: str | tuple[str, ...] = ()
    about: str = ""
    our_fault: bool = False
    what: str = _WHAT
    why_is_said_only: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """`says` as a tuple."""
        return (self.says,) if isinstance(self.says, str) else self.says


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """This request has created nothing: the cloud has refused it, or never received it.

    Attributes:
        refusal: the row of the cloud's table that matches; None if none does.
        says: the cloud's own words, one line.
        error: what the SDK raised; kedge's error is raised `from` it.
        as_is: the error to raise if no row matches: a missing permission, no network, a rate limit that lasts.
        remedy: what a person can do, if the cloud knows more than the row, such as the name of the quota; else empty.
        covers: which other offers the refusal applies to, if the reaction alone doesn't tell; else None.
    """

    refusal: Refusal | None
    says: str
    error: Exception
    as_is: KedgeError | None = None
    remedy: str = ""
    covers: Callable[[Offer], bool] | None = None

    @property
    def reaction(self) -> Reaction:
        """What kedge does about it; STOP if no row matches."""
        return self.refusal.reaction if self.refusal else Reaction.STOP

    @property
    def settles_earlier(self) -> bool:
        """Whether this also means that earlier sendings of the same request have created nothing.

        Only a refusal of the order itself means that. The cloud may refuse for other reasons before it looks at the
        idempotency token: expired credentials, a policy, a rate limit, or a role that it doesn't know yet.
        """
        return self.reaction in _OF_THE_ORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """The answer, or the lack of one, doesn't tell whether the request took effect.

    Attributes:
        why: one line.
        error: what the SDK raised; kedge's error is raised `from` it.
        is_final: sending the same request again would give the same answer.
    """

    why: str
    error: Exception
    is_final: bool = False


def find_refusal(table: Sequence[Refusal], code: str, message: str) -> Refusal | None:
    """Find the first row that matches; None if none does."""
    said = message.lower()
    return next((row for row in table if _matches(row, code, said)), None)


def translate_refusal(refused: Refused, order: MachineOrder, what: str = "") -> KedgeError:
    """Translate a refusal into a KedgeError whose class says how to react. The caller raises it `from refused.error`.

    Args:
        refused: the refusal.
        order: the order that was refused.
        what: what couldn't be done, if that isn't the creation of the machine.

    Returns:
        NoCapacityError if another offer may succeed, with `covers` if the refusal applies to other offers too;
        StillBillingError if the machine may exist; BadRequestError or KedgeError if no other offer would help.
    """
    row = refused.refusal
    if row is None:
        return refused.as_is or KedgeError(what or _fill(_WHAT, order), why=refused.says)
    what = what or _fill(row.what, order)
    why = refused.says if row.why_is_said_only else f"{row.meaning} ({refused.says})"
    fix = refused.remedy or _fill(row.remedy, order)
    match row.reaction:
        case Reaction.UNCLEAR | Reaction.LOOK_UP:
            return StillBillingError(what, why=why, fix=fix)
        case Reaction.RETRY | Reaction.NOT_YET | Reaction.STOP:
            return BadRequestError(what, why=why, fix=fix) if row.our_fault else KedgeError(what, why=why, fix=fix)
        case _:
            covers = refused.covers or _covers(row.reaction, order.offer)
            return NoCapacityError(what, why=why, fix=fix, covers=covers)


def _matches(row: Refusal, code: str, said: str) -> bool:
    is_code = any(fnmatchcase(code, pattern) for pattern in row.codes)
    return is_code and (not row.parts or any(part in said for part in row.parts))


def _fill(template: str, order: MachineOrder) -> str:
    offer = order.offer
    return template.format(id=order.id, type=offer.instance_type, region=offer.region, provider=offer.provider)


def _covers(reaction: Reaction, refused: Offer) -> Callable[[Offer], bool]:
    match reaction:
        case Reaction.NEVER_AT_ALL:
            return lambda _other: True
        case Reaction.NEVER_HERE:
            return lambda other: other.instance_type == refused.instance_type
        case Reaction.NEXT_REGION:
            return lambda other: other.region == refused.region
        case Reaction.NEXT_ZONE:
            return lambda other: (other.region, other.zone) == (refused.region, refused.zone)
        case _:
            return lambda other: other == refused
