"""What goes wrong between kedge and the API, and what each of it means for a request.

ApiError                 something failed, or was refused
├── RefusedError         the API said no: nothing was done. `status` says of which kind
│   └── BusyError        not now: too many requests
└── UnclearError         no answer that could be trusted: it may have been done
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import urllib3.exceptions
from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError

from orchestrator.core.errors import KedgeError

_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)

_LONGEST_PAUSE = 3600.0
_TIMED_OUT = 408
"""A proxy's word, which has waited too long for the API, or for the request: it doesn't say which."""


class ApiError(KedgeError):
    """The API can't be used for this."""


class RefusedError(ApiError):
    """The API refused, and did nothing.

    Attributes:
        status: of the answer, 4xx; 0 where nothing could be sent.
        code: the API's word for it, such as `unprocessable_entity`.
        message: what the API said.
    """

    def __init__(self, what: str, *, status: int, code: str = "", message: str = "", fix: str = "") -> None:
        said = f"the API answered {status} {code}: {message}" if status else message
        super().__init__(what, why=" ".join(said.split()), fix=fix or _FIXES.get(status, ""))
        self.status = status
        self.code = code
        self.message = message


class BusyError(RefusedError):
    """The API takes no more requests for a while.

    Attributes:
        retry_after: seconds, as the API said; 0 where it didn't.
    """

    def __init__(self, what: str, *, message: str, retry_after: float) -> None:
        super().__init__(what, status=429, code="too_many_requests", message=message)
        self.retry_after = retry_after


class UnclearError(ApiError):
    """Nobody knows whether the request had its effect."""


_FIXES = {
    0: "check the network, and the endpoint if you have set one",
    401: "give kedge a token that is valid, with the scopes that docs/digitalocean.md lists",
    403: "give the token the scopes that docs/digitalocean.md lists, or ask the account's owner for access",
    429: "wait some minutes: the account's rate limit is shared by all that uses it",
}


def failure_of(err: Exception, what: str) -> ApiError:
    """Say what a failure of the SDK's means for the request that met it.

    Args:
        err: what the SDK raised; the caller raises the result `from` it.
        what: what couldn't be done, for example "droplets can't be listed".
    """
    if isinstance(err, HttpResponseError) and err.response is not None:
        return _answer_failure(err, err.response, what)
    said = " ".join(str(err).split())
    if isinstance(err, ServiceRequestError) and any(isinstance(each, _NOT_SENT) for each in _causes(err)):
        return RefusedError(what, status=0, message=said)
    return UnclearError(what, why=f"the API didn't answer: {said}", fix=_FIXES[0])


def refusal_of(status: int, body: object, what: str) -> RefusedError:
    """Make the error for a refusal that the SDK hands over as a value."""
    code, message = _words(body)
    return RefusedError(what, status=status, code=code, message=message)


def _answer_failure(err: HttpResponseError, response: Any, what: str) -> ApiError:
    status = int(response.status_code or 0)
    code, message = _words_of(response, err)
    if status == 429:
        return BusyError(what, message=message, retry_after=_seconds(response.headers.get("retry-after", "")))
    if 400 <= status < 500 and status != _TIMED_OUT:
        return RefusedError(what, status=status, code=code, message=message)
    return UnclearError(what, why=f"the API answered {status}: {message}", fix="try again in a minute")


def _words_of(response: Any, err: HttpResponseError) -> tuple[str, str]:
    try:
        body: object = response.json()
    except (ValueError, AzureError):
        return "", " ".join(str(err).split())
    return _words(body)


def _words(body: object) -> tuple[str, str]:
    fields = body if isinstance(body, dict) else {}
    # Most refusals have a message; those of tags and of snapshots have an error, and messages besides.
    said = fields.get("message") or "; ".join([str(fields.get("error", "")), *map(str, fields.get("messages") or ())])
    return str(fields.get("id", "")), str(said)


def _seconds(text: str) -> float:
    """Read a Retry-After in seconds; a date isn't worth the trouble, as pauses grow by themselves."""
    return min(float(text), _LONGEST_PAUSE) if text.strip().isdecimal() else 0.0


def _causes(err: BaseException) -> Iterator[BaseException]:
    """Walk through what an error wraps: the SDK, requests and urllib3 each do it in their own way."""
    seen: list[BaseException] = []
    waiting: list[object] = [err]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, BaseException) or each in seen:
            continue
        seen.append(each)
        yield each
        waiting += [*each.args, getattr(each, "inner_exception", None), getattr(each, "reason", None)]
        waiting += [each.__cause__, each.__context__]
