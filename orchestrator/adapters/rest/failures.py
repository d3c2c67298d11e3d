"""The errors of an HTTP API, by what each means for the request: not done, or perhaps done.

ApiError                 the request failed or was refused
├── RefusedError         the API refused: nothing was done
│   └── BusyError        too many requests: nothing was done, try later
└── UnclearError         no answer that can be trusted: it may have been done
"""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from orchestrator.core.errors import KedgeError

_LONGEST_SECONDS = 3600.0
_NETWORK = "check the network, and the endpoint if you have set one"


class ApiError(KedgeError):
    """A request to the API failed."""


class RefusedError(ApiError):
    """The API refused, and did nothing.

    Attributes:
        status: the answer's HTTP status; 0 if nothing could be sent.
        code: the API's error code; empty if it has none.
        message: the API's error message.
    """

    def __init__(self, what: str, *, why: str, fix: str, status: int = 0, code: str = "", message: str = "") -> None:
        super().__init__(what, why=" ".join(why.split()), fix=fix)
        self.status = status
        self.code = code
        self.message = message


class BusyError(RefusedError):
    """The API accepts no more requests for a while.

    Attributes:
        retry_after: how long, as the API said; zero if it didn't.
    """

    retry_after = timedelta(0)


class UnclearError(ApiError):
    """It is unknown whether the request had its effect."""


def failure_of(err: HTTPError, what: str, speaker: str) -> ApiError:
    """Return the error for a request whose connection failed; the caller raises it `from err`."""
    said = " ".join(str(err).split())
    is_untrusted = isinstance(err, SSLError) and isinstance(err.args[0], ssl.SSLCertVerificationError)
    if is_untrusted or isinstance(err, NewConnectionError | ConnectTimeoutError):
        return RefusedError(what, why=said, fix=_NETWORK, message=said)
    return UnclearError(what, why=f"{speaker} didn't answer: {said}", fix=_NETWORK)


def read_pause(retry_after: str, now: datetime) -> timedelta:
    """Parse a Retry-After header, in seconds or as a date; zero if it is neither, at most an hour."""
    try:
        if retry_after.strip().isdecimal():
            return timedelta(seconds=min(float(retry_after), _LONGEST_SECONDS))
        wait = parsedate_to_datetime(retry_after) - now
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
    return min(max(wait, timedelta(0)), timedelta(seconds=_LONGEST_SECONDS))
