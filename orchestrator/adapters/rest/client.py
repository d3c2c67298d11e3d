"""A client of one HTTP API: rate limits, retries, authentication, and typed answers.

Requests that read are retried. Requests that create or delete are sent once, and retried only after "too many
requests", which says that nothing was done. Redirects aren't followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import urllib3

from orchestrator import __version__
from orchestrator.adapters.rest.failures import (
    ApiError,
    BusyError,
    RefusedError,
    UnclearError,
    failure_of,
    read_pause,
)
from orchestrator.adapters.rest.repeating import repeat
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.credentials import require_sendable
from orchestrator.core.values.structs import decode_json

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

_SAID_BYTES = 200
_AGAIN = "try again in a minute"
# What msgspec raises on answers of another type, that aren't UTF-8, or are nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Answer = TypeVar("_Answer")


class Verdict(Enum):
    """What an error answer says about the request."""

    REFUSED = "refused"
    BUSY = "busy"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One API, and the key for it.

    Attributes:
        speaker: the API's name in messages.
        endpoint: the base URL of all paths; https only.
        key: the bearer token; empty if the user has set none.
        key_name: the environment variable that holds the key.
        key_from: where the user gets a key.
        read_refusal: parses an error answer into code and message; None if the answer isn't the API's own.
        judge: returns the verdict on an error answer, by status, code and message.
        fixes: what the user can do, by status.
        paces: rate limits: path prefix -> seconds between two such requests. All prefixes that match apply.
        ca_file: certificates to trust besides the system's; empty for none.
        timeout_seconds: how long to wait for an answer.
    """

    speaker: str
    endpoint: str
    key: str = field(repr=False)
    key_name: str
    key_from: str
    read_refusal: Callable[[bytes], tuple[str, str] | None]
    judge: Callable[[int, str, str], Verdict]
    fixes: Mapping[int, str]
    paces: Mapping[str, float] = field(default_factory=dict)
    ca_file: str = ""
    timeout_seconds: float = 60


class Client:
    """Sends requests to one API.

    Args:
        service: the API.
        clock: tells the time, and sleeps between requests.
    """

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service = service
        self._clock = clock
        self._answered: dict[str, datetime] = {}

    def read(self, what: str, path: str, kind: type[_Answer]) -> _Answer:
        """Send a request that only reads, with retries.

        Args:
            what: the error's text if it fails: "instance 7 can't be looked at".
            path: the URL's part after the endpoint.
            kind: the type of the answer; fields that the type lacks are ignored.

        Raises:
            ApiError: the API refuses, or doesn't answer within its time.
        """
        return repeat(lambda: self.ask_once(what, path, kind), self._clock, unclear=True)

    def ask_once(self, what: str, path: str, kind: type[_Answer]) -> _Answer:
        """Send a request that only reads, once: for callers that prefer an error to a wait.

        Raises:
            ApiError: the API refuses, or doesn't answer.
        """
        return self._decode(what, self._send(what, "GET", path), kind)

    def act(self, what: str, path: str, body: Mapping[str, Any], kind: type[_Answer]) -> _Answer:
        """Send a request that creates or deletes, once.

        Raises:
            RefusedError: the API refuses; nothing was done.
            UnclearError: it may have been done.
        """
        sent = repeat(lambda: self._send(what, "POST", path, body), self._clock, unclear=False)
        return self._decode(what, sent, kind)

    def _send(self, what: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        headers, sent = self._headers, None if body is None else json.dumps(body)
        limits = {prefix: seconds for prefix, seconds in self.service.paces.items() if path.startswith(prefix)}
        self._await_turn(limits)
        try:
            answer = self._pool.request(
                method, self.service.endpoint + path, body=sent, headers=headers, redirect=False
            )
        except urllib3.exceptions.HTTPError as err:
            raise failure_of(err, what, self.service.speaker) from err
        finally:
            self._answered |= dict.fromkeys(limits, self._clock.now())
        if not 200 <= answer.status < 300:
            raise self._failure_of_answer(what, answer)
        return answer.data

    def _await_turn(self, limits: Mapping[str, float]) -> None:
        """Wait until the account's rate limits allow the request, counting this process's requests only.

        The wait counts from the last answer, because a slow request arrives late. It is never longer than the longest
        limit, even if the clock is set back.
        """
        now = self._clock.now()
        pauses = [
            min(seconds, seconds - (now - self._answered[prefix]).total_seconds())
            for prefix, seconds in limits.items()
            if prefix in self._answered
        ]
        if (pause := max(pauses, default=0.0)) > 0:
            self._clock.sleep(timedelta(seconds=pause))

    def _failure_of_answer(self, what: str, answer: urllib3.BaseHTTPResponse) -> ApiError:
        service, status = self.service, answer.status
        plain = "", answer.data[:_SAID_BYTES].decode("utf-8", "replace")
        code, message = service.read_refusal(answer.data) or plain
        why = f"{service.speaker} answered {status} {code}: {message}"
        verdict = service.judge(status, code, message)
        if verdict is Verdict.UNCLEAR:
            return UnclearError(what, why=" ".join(why.split()), fix=_AGAIN)
        kind = BusyError if verdict is Verdict.BUSY else RefusedError
        refused = kind(what, why=why, fix=service.fixes.get(status, ""), status=status, code=code, message=message)
        if isinstance(refused, BusyError):
            refused.retry_after = read_pause(answer.headers.get("Retry-After", ""), self._clock.now())
        return refused

    def _decode(self, what: str, content: bytes, kind: type[_Answer]) -> _Answer:
        try:
            return decode_json(content, kind)
        except UNREADABLE as err:
            raise UnclearError(what, why=f"{self.service.speaker}'s answer can't be read: {err}", fix=_AGAIN) from err

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=5, read=self.service.timeout_seconds)
        return urllib3.PoolManager(ca_certs=self.service.ca_file or None, retries=False, timeout=timeout)

    @cached_property
    def _headers(self) -> dict[str, str]:
        service = self.service
        if not service.key:
            raise BadRequestError(
                f"{service.speaker} can't be used",
                why=f"{service.key_name} isn't set",
                fix=f"set it to a key from {service.key_from}",
            )
        if not service.endpoint.startswith("https://"):
            raise BadRequestError(
                f"the endpoint {service.endpoint!r} can't be used",
                why="a key is sent over https only",
                fix="write https://HOST",
            )
        return {
            "Authorization": f"Bearer {require_sendable(service.key, f'the key in {service.key_name}')}",
            "User-Agent": f"kedge/{__version__}",
            "Content-Type": "application/json",
        }
