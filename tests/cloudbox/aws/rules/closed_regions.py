"""Regions that are closed to the account: by its organization, or because nobody has enabled them.

Those that a new account lacks are not enabled.

fact: aws-scp-deny; fact: aws-region-not-enabled; fact: aws-default-regions
"""

from __future__ import annotations

import threading

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_REGIONAL = frozenset({"ec2", "ssm", "servicequotas", "scheduler"})
_HOW = ("scp", "scp-unsaid", "scp-launches", "not-enabled", "opt-in")


class ClosedRegions:
    """Which regions are closed, and how.

    `scp`: an organization's policy denies every call, and says so; `scp-unsaid`: EC2 leaves out why;
    `scp-launches`: only launches are denied; `not-enabled`: credentials aren't accepted there; `opt-in`: EC2 asks to
    enable it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: dict[str, str] = {}

    def close(self, region: str, how: str) -> None:
        """Close a region.

        Raises:
            ValueError: nobody knows how.
        """
        if how not in _HOW:
            raise ValueError(f"a region is closed as one of {', '.join(_HOW)}")
        with self._lock:
            self._closed[region] = how

    def reset(self) -> None:
        """Open all regions that a new account has."""
        with self._lock:
            self._closed.clear()

    def check(self, call: Call) -> None:
        """Refuse a call in a closed region.

        Raises:
            AwsError: it is closed.
        """
        with self._lock:
            how = self._closed.get(call.region, "" if call.region in moto_state.ENABLED else "not-enabled")
        if not how or call.service not in _REGIONAL:
            return
        if how == "scp-launches" and call.action != "RunInstances":
            return
        raise _refusal(call, how)


def _refusal(call: Call, how: str) -> AwsError:
    if how == "not-enabled":
        return _not_enabled(call)
    if how == "opt-in":
        return AwsError(
            "OptInRequired", "You are not subscribed to this service. Please go to the region settings.", 401
        )
    said = "" if how == "scp-unsaid" else f" {_denial(call)}"
    if call.service == "ec2":
        return AwsError("UnauthorizedOperation", f"You are not authorized to perform this operation.{said}", 403)
    return AwsError("AccessDeniedException", said.strip() or "User is not authorized", 400)


def _not_enabled(call: Call) -> AwsError:
    if call.service == "ec2":
        return AwsError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    return AwsError("UnrecognizedClientException", "The security token included in the request is invalid.", 400)


def _denial(call: Call) -> str:
    account = moto_state.ACCOUNT
    return (
        f"User: arn:aws:iam::{account}:user/operator is not authorized to perform: {call.service}:{call.action} on"
        f" resource: arn:aws:{call.service}:{call.region}:{account}:* with an explicit deny in a service control policy"
    )
