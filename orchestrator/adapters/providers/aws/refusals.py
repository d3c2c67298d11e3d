"""What becomes of a refused launch: its meaning, one of kedge's errors, and the page that people read.

`render_table` makes docs/aws-errors.md of the table in refusal_table.py, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import assert_never

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnectedError

from orchestrator.adapters.aws_sdk import code_of, message_of, translate
from orchestrator.adapters.providers.aws.quotas import ALL_QUOTAS, console_url, covered_by, quota_of
from orchestrator.adapters.providers.aws.refusal_table import (
    FAILED_STARTS,
    LOST,
    REFUSALS,
    UNKNOWN,
    UNSENT,
    Reaction,
    Refusal,
)
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.offer import Offer

__all__ = ["Reaction", "Refusal", "is_for_another_offer", "refusal_of", "render_table", "translate_refusal"]

_INTRODUCTION = """# When AWS refuses a machine

Made of the table in `orchestrator/adapters/providers/aws/refusal_table.py` by `refusals.render_table`.

An error of kedge's names AWS's code. This is what each means, what kedge does about it by itself, and what you can do
when kedge has run out of things to try.

| AWS's code | what it means | what kedge does | what you can do |
|---|---|---|---|
"""
_STARTS_INTRODUCTION = """
## Machines that AWS takes and then can't start

AWS may say yes to a launch and end the machine while it starts, with one of these state reasons. It is a failed launch:
`launch` and `resume` take the next offer.

| state reason | what it means |
|---|---|
"""
_QUOTAS_INTRODUCTION = """
## Quotas

A quota counts vCPUs that run at once, in one region, of one family and market. New accounts have 0 for most GPU
families. Ask for more at
`https://REGION.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/CODE`; small increases are often granted
within minutes.

| code | quota |
|---|---|
"""


def refusal_of(err: ClientError | BotoCoreError) -> Refusal:
    """Find what an error means."""
    if not isinstance(err, ClientError):
        return _refusal_of_failure(err)
    code, message = code_of(err), message_of(err).lower()
    return next((each for each in REFUSALS if _matches(each, code, message)), UNKNOWN)


def is_for_another_offer(err: ClientError | BotoCoreError) -> bool:
    """Tell whether what was refused here may be granted elsewhere."""
    return refusal_of(err).reaction in (
        Reaction.NEXT_POOL,
        Reaction.NEXT_ZONE,
        Reaction.NEXT_REGION,
        Reaction.NEXT_QUOTA,
    )


def translate_refusal(err: ClientError | BotoCoreError, offer: Offer, what: str) -> KedgeError:
    """Make one of kedge's errors of a refused launch; its class says how to react.

    `refusal_of(err).reaction` says before that whether to ask again first (RETRY, UNCLEAR).

    Args:
        err: what the SDK raised; the caller raises the result `from` it.
        offer: what was asked for.
        what: what couldn't be done: "g5.xlarge in us-east-1a can't be launched".

    Returns:
        NoCapacityError for what another offer may grant, with `covers` where the refusal speaks for others too;
        StillBillingError where the machine may exist; BadRequestError or KedgeError where asking elsewhere is no use.
    """
    refusal = refusal_of(err)
    if refusal is UNSENT or (isinstance(err, BotoCoreError) and refusal is UNKNOWN):
        return translate(err, what)
    why = f"{refusal.meaning} ({_said(err)})"
    fix = _remedy(refusal, offer)
    match refusal.reaction:
        case Reaction.NEXT_POOL | Reaction.NEXT_ZONE | Reaction.NEXT_REGION | Reaction.NEXT_QUOTA:
            return NoCapacityError(what, why=why, fix=fix, covers=_covers(refusal.reaction, offer))
        case Reaction.UNCLEAR:
            return StillBillingError(what, why=why, fix=fix)
        case Reaction.RETRY | Reaction.STOP:
            return BadRequestError(what, why=why, fix=fix) if refusal.our_fault else KedgeError(what, why=why, fix=fix)
        case never:
            assert_never(never)


def render_table() -> str:
    """Render docs/aws-errors.md."""
    rows = [_row(each) for each in (*REFUSALS, LOST, UNSENT, UNKNOWN)]
    quotas = [f"| `{quota.code}` | {quota.name} |" for quota in ALL_QUOTAS]
    starts = [f"| `{code}` | {meaning} |" for code, meaning in FAILED_STARTS.items()]
    return f"{_INTRODUCTION}{_lines(rows)}{_STARTS_INTRODUCTION}{_lines(starts)}{_QUOTAS_INTRODUCTION}{_lines(quotas)}"


def _refusal_of_failure(err: BotoCoreError) -> Refusal:
    if isinstance(err, NotConnectedError):
        return UNSENT
    return LOST if isinstance(err, HTTPClientError) else UNKNOWN


def _matches(refusal: Refusal, code: str, message: str) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in refusal.codes) and refusal.says in message


def _said(err: ClientError | BotoCoreError) -> str:
    return f"{code_of(err)}: {message_of(err)}" if isinstance(err, ClientError) else " ".join(str(err).split())


def _remedy(refusal: Refusal, offer: Offer) -> str:
    if refusal.reaction is not Reaction.NEXT_QUOTA:
        return refusal.remedy
    quota = quota_of(offer.instance_type, spot=offer.spot)
    url = f"https://{offer.region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    return refusal.remedy.format(
        quota=quota.code if quota else f"for {offer.instance_type}",
        url=console_url(offer.region, quota) if quota else url,
    )


def _covers(reaction: Reaction, offer: Offer) -> Callable[[Offer], bool]:
    if reaction is Reaction.NEXT_QUOTA:
        return covered_by(quota_of(offer.instance_type, spot=offer.spot), offer)
    if reaction is Reaction.NEXT_REGION:
        return lambda other: other.region == offer.region
    if reaction is Reaction.NEXT_ZONE:
        return lambda other: (other.region, other.zone) == (offer.region, offer.zone)
    return lambda other: other == offer


def _row(refusal: Refusal) -> str:
    quoted = ", ".join(code if " " in code else f"`{code}`" for code in refusal.codes)
    named = f"{quoted} ({refusal.about})" if refusal.about else quoted
    remedy = refusal.remedy.format(quota="(below)", url="the page that the error names")
    return f"| {named} | {refusal.meaning} | {refusal.reaction.value} | {remedy} |"


def _lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
