"""Recognizes regions that are closed to an account: by its organization, or because they aren't enabled.

A denial by an organization's service control policy (SCP) looks like a missing permission. Newer messages name the
policy, but EC2's don't for every account.
"""

from __future__ import annotations

from botocore.exceptions import ClientError

from orchestrator.adapters.aws_sdk import FORBIDDEN, SCP, code_of, message_of
from orchestrator.core.errors import BadRequestError, KedgeError

_NOT_ENABLED = frozenset({"OptInRequired", "AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId"})


class NotInRegionError(BadRequestError):
    """A region has no such image, subnet or group; another may."""


def why_left_out(err: ClientError | KedgeError) -> str:
    """Say why a region's offers can't be listed, if the region itself is the reason; else return an empty string.

    Any denied call counts: what can't be queried there can't be rented there, and the note shows the code.
    """
    if isinstance(err, NotInRegionError):
        return f"is left out: {err.what}"
    cause = _answer(err)
    if cause is None or not (code_of(cause) in FORBIDDEN or is_closed(cause)):
        return ""
    by = f", by a {SCP}" if _names_scp(cause) else ""
    return f"is closed to this account ({code_of(cause)}{by})"


def is_closed(err: ClientError | KedgeError) -> bool:
    """Tell whether an error means that nothing can be rented in the region."""
    return bool(why_closed(err))


def why_closed(err: ClientError | KedgeError) -> str:
    """Say why an error means that nothing can be rented in the region; empty if it doesn't mean that."""
    # fact: aws-scp-deny; fact: aws-region-not-enabled
    cause = _answer(err)
    if cause is None:
        return ""
    if is_denied_by_scp(cause):
        return f"is closed to this account by a {SCP}"
    return "is not enabled for this account" if code_of(cause) in _NOT_ENABLED else ""


def is_denied_by_scp(err: ClientError) -> bool:
    """Tell whether the organization denies the call in this region; IAM's denials are for all regions."""
    return code_of(err) in FORBIDDEN and _names_scp(err) and "perform: iam:" not in message_of(err)


def _answer(err: BaseException) -> ClientError | None:
    cause = err if isinstance(err, ClientError) else err.__cause__
    return cause if isinstance(cause, ClientError) else None


def _names_scp(err: ClientError) -> bool:
    return SCP in message_of(err)
