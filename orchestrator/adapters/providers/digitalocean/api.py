"""`Api`: every call of DigitalOcean's SDK goes through here.

The SDK repeats creations by itself, returns 404 and some 400s as values, and waits five minutes for an answer. Here
its retries are off for all calls. Reads and deletions are repeated while that may help. Creations are sent once, and
again only after an answer that means that nothing was done: too many requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from orchestrator.adapters.providers.digitalocean.answers import understand
from orchestrator.adapters.providers.digitalocean.failures import failure_of, refusal_of
from orchestrator.adapters.rest.failures import UnclearError
from orchestrator.adapters.rest.repeating import repeat
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.credentials import require_sendable

if TYPE_CHECKING:
    import pydo

    from orchestrator.adapters.providers.digitalocean.site import Site
    from orchestrator.core.ports import Clock

Json = dict[str, Any]
Operation = Callable[..., Any]

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_PER_PAGE = 200
_MOST_PAGES = 500
# The SDK's errors, and what it raises for answers that aren't JSON, or have another encoding.
_FAILURES = (AzureError, ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError)


class Api:
    """One account's API.

    Args:
        site: has the endpoint and the token.
        clock: for waits between attempts.
    """

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site = site
        self._clock = clock

    @cached_property
    def client(self) -> pydo.Client:
        """The SDK's client; its operations are arguments of the methods below. Nothing is contacted.

        Raises:
            BadRequestError: the token is missing or can't be sent in a header, or the endpoint isn't https.
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
        # Importing the SDK takes a quarter of a second, also of a command that only finds that there is no token.
        from pydo import Client  # noqa: PLC0415

        return Client(
            require_sendable(site.token, f"the token in {' or '.join(site.token_names)}"),
            endpoint=site.endpoint,
            connection_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            connection_verify=site.ca_file or True,
        )

    def read(self, what: str, operation: Operation, *args: object, **kwargs: object) -> Json | None:
        """Read something; None if it doesn't exist.

        Args:
            what: the error's first line: "droplet 7 can't be read".
            operation: of `client`.
            args: the operation's.
            kwargs: likewise.

        Raises:
            ApiError: the API refuses, or doesn't answer within its time.
        """
        status, body = repeat(lambda: self._send(what, operation, *args, **kwargs), self._clock, unclear=True)
        return None if status == 404 else _accepted(what, status, body)

    def ask_once(self, what: str, operation: Operation) -> Json:
        """Read something that always exists, without retries: for callers that prefer an error to a wait.

        Raises:
            ApiError: the API refuses, or doesn't answer.
        """
        return _accepted(what, *self._send(what, operation)) or {}

    def delete(self, what: str, operation: Operation, *args: object, **kwargs: object) -> bool:
        """Delete something, or do something idempotent; False if it doesn't exist.

        Raises:
            ApiError: the API refuses, or doesn't confirm it within its time.
        """
        return self.read(what, operation, *args, **kwargs) is not None

    def create(self, what: str, operation: Operation, *args: object, **kwargs: object) -> Json:
        """Create something; the request is sent once.

        Raises:
            RefusedError: the API refuses; nothing was created.
            UnclearError: it may have been created.
        """
        status, body = repeat(lambda: self._send(what, operation, *args, **kwargs), self._clock, unclear=False)
        made = _accepted(what, status, body)
        if not made:
            raise UnclearError(what, why=f"the API answered {status}, and doesn't say what it made")
        return made

    def pages(self, what: str, operation: Operation, key: str, **kwargs: object) -> Iterator[Json]:
        """Yield all items, page by page.

        Args:
            what: the error's first line.
            operation: of `client`.
            key: of the items in a page.
            kwargs: the operation's.

        Raises:
            ApiError: a page can't be read: half a list never counts as the whole.
        """
        for page in range(1, _MOST_PAGES):
            body = self.read(what, operation, page=page, **{"per_page": _PER_PAGE, **kwargs})
            if body is None:
                raise refusal_of(404, None, what)
            yield from body[key] or ()
            if not ((body.get("links") or {}).get("pages") or {}).get("next"):
                return

    def _send(self, what: str, operation: Operation, *args: object, **kwargs: object) -> tuple[int, Any]:
        try:
            # `cls` is the SDK's hook for the raw answer: without it, a 404 looks like success.
            answer: tuple[int, Any] = operation(
                *args, **kwargs, retry_total=0, permit_redirects=False, cls=_keep_answer
            )
        except _FAILURES as err:
            raise failure_of(err, what, self._clock.now()) from err
        return answer


def _keep_answer(response: Any, body: Any, _headers: Mapping[str, str]) -> tuple[int, Any]:
    return int(response.http_response.status_code), body


def _accepted(what: str, status: int, body: Any) -> Json:
    if status >= 400:
        raise refusal_of(status, body, what)
    return understand(what, status, body)
