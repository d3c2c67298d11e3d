"""What a launch that fails means: what is done about it, one of kedge's errors, and the page that people read.

`render_table` makes docs/aws-errors.md of the table in refusal_table.py, and a test compares the two.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, SSLError
from botocore.exceptions import ConnectionError as NotConnectedError
from botocore.parsers import ResponseParserError

from orchestrator.adapters.aws_sdk import code_of, message_of, translate
from orchestrator.adapters.cloud.refusals import Reaction, Refusal, Refused, Unclear, find_refusal, translate_refusal
from orchestrator.adapters.providers.aws.market.quotas import ALL_QUOTAS, Quota, console_url, covered_by, quota_of
from orchestrator.adapters.providers.aws.refusal_table import FAILED_STARTS, LOST, REFUSALS, UNKNOWN, UNSENT

if TYPE_CHECKING:
    from orchestrator.core.errors import KedgeError
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.offer import Offer

_INTRODUCTION = """# When AWS refuses a machine

kedge's error names AWS's code. This page says what each code means, what kedge does by itself, and what you can do when
kedge has nothing left to try. It is made from the table in `orchestrator/adapters/providers/aws/refusal_table.py`.

| AWS's code | what it means | what kedge does | what you can do |
|---|---|---|---|
"""
_STARTS_INTRODUCTION = """
## Machines that AWS accepts and can't start

AWS may accept a launch, and then terminate the machine while it starts, with one of these state reasons. kedge counts
this as a failed launch: `launch` and `resume` try the next offer.

| state reason | what it means |
|---|---|
"""
_QUOTAS_INTRODUCTION = """
## Quotas

A quota limits how many vCPUs of one family and market run at the same time in one region. New accounts have 0 for most
GPU families. Ask for more at
`https://REGION.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/CODE`; small increases are often granted
within minutes.

| code | quota |
|---|---|
"""


def refusal_of(err: ClientError | BotoCoreError) -> Refusal:
    """Find what an error means."""
    if not isinstance(err, ClientError):
        return _refusal_of_failure(err)
    return find_refusal(REFUSALS, code_of(err), message_of(err)) or UNKNOWN


def is_for_another_offer(err: ClientError | BotoCoreError) -> bool:
    """Tell whether another offer may succeed after this refusal."""
    return refusal_of(err).reaction in (
        Reaction.NEXT_POOL,
        Reaction.NEXT_ZONE,
        Reaction.NEXT_REGION,
        Reaction.NEXT_QUOTA,
    )


def refused_launch(err: ClientError | BotoCoreError, order: MachineOrder, what: str) -> KedgeError:
    """Make kedge's error for a refused launch, or a refused volume of a launch; its class says how to react.

    Args:
        err: what the SDK raised; the caller raises the result `from` it.
        order: what was asked for.
        what: what couldn't be done: "g5.xlarge in us-east-1a can't be launched".
    """
    return translate_refusal(read_refusal(err, order.offer, what), order, what)


def read_refusal(err: ClientError | BotoCoreError, offer: Offer, what: str) -> Refused:
    """Say what a refusal means for an offer; see `refused_launch`."""
    row = refusal_of(err)
    if row is UNSENT or (row is UNKNOWN and isinstance(err, BotoCoreError)):
        return Refused(refusal=None, says=_said(err), error=err, as_is=translate(err, what))
    if row.reaction is not Reaction.NEXT_QUOTA:
        return Refused(refusal=row, says=_said(err), error=err)
    quota = quota_of(offer.instance_type, spot=offer.spot)
    return Refused(
        refusal=row,
        says=_said(err),
        error=err,
        remedy=_ask_for_more(row.remedy, quota, offer),
        covers=covered_by(quota, offer),
    )


def read_failed_launch(
    err: ClientError | BotoCoreError | ResponseParserError, order: MachineOrder
) -> Refused | Unclear:
    """Classify the error of a RunInstances: it was refused, or its outcome is unclear."""
    if isinstance(err, ResponseParserError):
        return Unclear(why=" ".join(str(err).split()), error=err)
    return read_refusal(err, order.offer, f"machine {order.id} can't be created")


def render_table() -> str:
    """Render docs/aws-errors.md."""
    rows = [_row(each) for each in (*REFUSALS, LOST, UNSENT, UNKNOWN)]
    quotas = [f"| `{quota.code}` | {quota.name} |" for quota in ALL_QUOTAS]
    starts = [f"| `{code}` | {meaning} |" for code, meaning in FAILED_STARTS.items()]
    return f"{_INTRODUCTION}{_lines(rows)}{_STARTS_INTRODUCTION}{_lines(starts)}{_QUOTAS_INTRODUCTION}{_lines(quotas)}"


def _refusal_of_failure(err: BotoCoreError) -> Refusal:
    if isinstance(err, SSLError):
        # Only a refused certificate proves that no request was sent: other TLS errors may come after it.
        return UNSENT if isinstance(_cause_of(err), ssl.SSLCertVerificationError) else LOST
    if isinstance(err, NotConnectedError):
        return UNSENT
    return LOST if isinstance(err, HTTPClientError) else UNKNOWN


def _cause_of(err: SSLError) -> object:
    """Return what Python's ssl module raised: the SDK wraps the HTTP client's error, which wraps it."""
    wrapped: object = err.kwargs.get("error")
    return next(iter(wrapped.args), None) if isinstance(wrapped, Exception) else None


def _said(err: ClientError | BotoCoreError) -> str:
    return f"{code_of(err)}: {message_of(err)}" if isinstance(err, ClientError) else " ".join(str(err).split())


def _ask_for_more(remedy: str, quota: Quota | None, offer: Offer) -> str:
    url = f"https://{offer.region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    return remedy.format(
        quota=quota.code if quota else f"for {offer.instance_type}",
        url=console_url(offer.region, quota) if quota else url,
    )


def _row(refusal: Refusal) -> str:
    quoted = ", ".join(code if " " in code else f"`{code}`" for code in refusal.codes)
    named = f"{quoted} ({refusal.about})" if refusal.about else quoted
    remedy = refusal.remedy.format(quota="(below)", url="the page that the error names")
    return f"| {named} | {refusal.meaning} | {refusal.reaction.value} | {remedy} |"


def _lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
