"""Classifies the SDK's failures into the kinds that every HTTP API has (adapters/rest)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar

import urllib3.exceptions
from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError

from orchestrator.adapters.rest.failures import ApiError, BusyError, RefusedError, UnclearError, read_pause

_Kind = TypeVar("_Kind", bound=RefusedError)

_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)

_TIMED_OUT = 408
"""A proxy's answer when it has waited too long; it doesn't say whether for the API or for the request."""


_FIXES = {
    0: "check the network, and the endpoint if you have set one",
    401: "give kedge a token that is valid, with the scopes that docs/digitalocean.md lists",
    403: "give the token the scopes that docs/digitalocean.md lists, or ask the account's owner for access",
    429: "wait some minutes: the account's rate limit is shared by all that uses it",
}


def failure_of(err: Exception, what: str, now: datetime) -> ApiError:
    """Translate a failure of the SDK into what it means for the request.

    Args:
        err: what the SDK raised; the caller raises the result `from` it.
        what: what couldn't be done, for example "droplets can't be listed".
        now: a Retry-After may be a date.
    """
    if isinstance(err, HttpResponseError) and err.response is not None:
        return _answer_failure(err, err.response, what, now)
    said = " ".join(str(err).split())
    if isinstance(err, ServiceRequestError) and any(isinstance(each, _NOT_SENT) for each in _causes(err)):
        return RefusedError(what, why=said, fix=_FIXES[0], message=said)
    return UnclearError(what, why=f"the API didn't answer: {said}", fix=_FIXES[0])


def refusal_of(status: int, body: object, what: str) -> RefusedError:
    """Make the error for a refusal that the SDK hands over as a value."""
    return _refused(RefusedError, what, status, *_words(body))


def _refused(kind: type[_Kind], what: str, status: int, code: str, message: str) -> _Kind:
    why = f"the API answered {status} {code}: {message}"
    return kind(what, why=why, fix=_FIXES.get(status, ""), status=status, code=code, message=message)


def _answer_failure(err: HttpResponseError, response: Any, what: str, now: datetime) -> ApiError:
    status = int(response.status_code or 0)
    code, message = _words_of(response, err)
    if status == 429:
        busy = _refused(BusyError, what, status, "too_many_requests", message)
        busy.retry_after = read_pause(response.headers.get("retry-after", ""), now)
        return busy
    if 400 <= status < 500 and status != _TIMED_OUT:
        return _refused(RefusedError, what, status, code, message)
    return UnclearError(what, why=f"the API answered {status}: {message}", fix="try again in a minute")


def _words_of(response: Any, err: HttpResponseError) -> tuple[str, str]:
    try:
        body: object = response.json()
    except (ValueError, AzureError):
        return "", " ".join(str(err).split())
    return _words(body)


def _words(body: object) -> tuple[str, str]:
    fields = body if isinstance(body, dict) else {}
    # Most refusals have a `message`; those of tags and snapshots have an `error` and `messages`.
    said = fields.get("message") or "; ".join([str(fields.get("error", "")), *map(str, fields.get("messages") or ())])
    return str(fields.get("id", "")), str(said)


def _causes(err: BaseException) -> Iterator[BaseException]:
    """Yield the errors that an error wraps: the SDK, requests and urllib3 each wrap in their own way."""
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
