"""The way to the API: every call of the SDK goes through here.

The SDK repeats creations by itself, hands 404 and some 400s over as values, and waits five minutes for an answer. Here
its retries are off for all calls. What reads or deletes is repeated while that helps; what creates is sent once, and
again only after an answer that says that nothing was done: too many requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydo
from azure.core.exceptions import AzureError

from orchestrator.adapters.providers.digitalocean.answers import understand
from orchestrator.adapters.providers.digitalocean.failures import (
    ApiError,
    BusyError,
    UnclearError,
    failure_of,
    refusal_of,
)
from orchestrator.core.credentials import require_sendable
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.site import Site
    from orchestrator.core.ports import Clock

Json = dict[str, Any]
Operation = Callable[..., Any]

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_BUSY_FOR = timedelta(seconds=150)
"""The limit that counts is 250 requests a minute; a wait may meet two windows."""
_UNCLEAR_FOR = timedelta(seconds=30)
_FIRST_PAUSE = timedelta(seconds=0.5)
_LONGEST_PAUSE = timedelta(seconds=16)
_PER_PAGE = 200
_MOST_PAGES = 500
# Of the SDK, and what it lets through on answers that are no JSON, or none of its encoding.
_FAILURES = (AzureError, ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError)


class Api:
    """One account's API.

    Args:
        site: where it is, and the token.
        clock: lets time pass between attempts.
    """

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site = site
        self._clock = clock

    @cached_property
    def client(self) -> pydo.Client:
        """The SDK's client, whose operations are given to the methods below; nothing is contacted.

        Raises:
            BadRequestError: there is no token, or none that can be sent, or the endpoint isn't https.
        """
        site = self.site
        if not site.token:
            raise BadRequestError(
                f"the provider {site.name} can't be used",
                why="there is no API token",
                fix=f"set {site.token_names[0]} to a token with the scopes that docs/digitalocean.md lists",
            )
        if not site.endpoint.startswith("https://"):
            raise BadRequestError(
                f"the endpoint {site.endpoint!r} can't be used",
                why="the SDK sends tokens over https only",
                fix="write https://HOST",
            )
        return pydo.Client(
            require_sendable(site.token, f"the token in {' or '.join(site.token_names)}"),
            endpoint=site.endpoint,
            connection_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            connection_verify=site.ca_file or True,
        )

    def read(self, what: str, operation: Operation, *args: object, **kwargs: object) -> Json | None:
        """Ask for something; None where there is no such thing.

        Args:
            what: what fails where it fails: "droplet 7 can't be looked at".
            operation: of `client`.
            args: the operation's.
            kwargs: likewise.

        Raises:
            ApiError: the API refuses, or doesn't answer within its time.
        """
        status, body = self._repeat(lambda: self._send(what, operation, *args, **kwargs), unclear=True)
        return None if status == 404 else _accepted(what, status, body)

    def ask_once(self, what: str, operation: Operation) -> Json:
        """Ask for something that is always there, for who would rather hear that it fails than wait.

        Raises:
            ApiError: the API refuses, or doesn't answer.
        """
        return _accepted(what, *self._send(what, operation)) or {}

    def delete(self, what: str, operation: Operation, *args: object, **kwargs: object) -> bool:
        """Delete something, or do what may be done twice; False where there is no such thing.

        Raises:
            ApiError: the API refuses, or doesn't confirm it within its time.
        """
        return self.read(what, operation, *args, **kwargs) is not None

    def create(self, what: str, operation: Operation, *args: object, **kwargs: object) -> Json:
        """Make something, once.

        Raises:
            RefusedError: the API says no; nothing was made.
            UnclearError: it may have been made.
        """
        status, body = self._repeat(lambda: self._send(what, operation, *args, **kwargs), unclear=False)
        made = _accepted(what, status, body)
        if not made:
            raise UnclearError(what, why=f"the API answered {status}, and doesn't say what it made")
        return made

    def pages(self, what: str, operation: Operation, key: str, **kwargs: object) -> Iterator[Json]:
        """List all there is, page by page.

        Args:
            what: what fails where it fails.
            operation: of `client`.
            key: under which a page has its items.
            kwargs: the operation's.

        Raises:
            ApiError: a page can't be had: half a list is never taken for the whole.
        """
        for page in range(1, _MOST_PAGES):
            body = self.read(what, operation, page=page, **{"per_page": _PER_PAGE, **kwargs})
            if body is None:
                raise refusal_of(404, None, what)
            yield from body[key] or ()
            if not ((body.get("links") or {}).get("pages") or {}).get("next"):
                return

    def _repeat(self, send: Callable[[], tuple[int, Any]], *, unclear: bool) -> tuple[int, Any]:
        begun = self._clock.now()
        pause = _FIRST_PAUSE
        while True:
            try:
                return send()
            except ApiError as err:
                wait = max(pause, timedelta(seconds=err.retry_after)) if isinstance(err, BusyError) else pause
                if self._clock.now() + wait - begun > _patience(err, unclear=unclear):
                    raise
            self._clock.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _send(self, what: str, operation: Operation, *args: object, **kwargs: object) -> tuple[int, Any]:
        try:
            # `cls` is the SDK's hook for whoever wants the answer itself: without it, a 404 looks like success.
            answer: tuple[int, Any] = operation(
                *args, **kwargs, retry_total=0, permit_redirects=False, cls=_keep_answer
            )
        except _FAILURES as err:
            raise failure_of(err, what) from err
        return answer


def _keep_answer(response: Any, body: Any, _headers: Mapping[str, str]) -> tuple[int, Any]:
    return int(response.http_response.status_code), body


def _accepted(what: str, status: int, body: Any) -> Json:
    if status >= 400:
        raise refusal_of(status, body, what)
    return understand(what, status, body)


def _patience(err: ApiError, *, unclear: bool) -> timedelta:
    if isinstance(err, BusyError):
        return _BUSY_FOR
    return _UNCLEAR_FOR if unclear and isinstance(err, UnclearError) else timedelta(0)
