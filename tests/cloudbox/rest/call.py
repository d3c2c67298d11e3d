"""A request as a box's handlers get it, and their answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(slots=True, kw_only=True)
class Call:
    """One request; `params` are the parts of its path that the route's template names."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes
    origin: str
    """Scheme and host, for the links in answers."""
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """Return the body's fields.

        Raises:
            BadBodyError: it isn't a JSON object.
        """
        try:
            fields = json.loads(self.raw or b"{}")
        except ValueError as err:
            raise BadBodyError("the body is not JSON") from err
        if not isinstance(fields, dict):
            raise BadBodyError("the body is not an object")
        return fields

    @property
    def token(self) -> str:
        """Return the bearer token; empty if there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer: `body` is sent as JSON, otherwise `text` unchanged; without both there is no content."""

    status: int = 200
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    is_described: bool = True
    """False if the API's description doesn't have this answer, although the real API gives it."""

    def encode(self) -> bytes:
        """Return the body as bytes."""
        return (self.text or "").encode() if self.body is None else json.dumps(self.body).encode()


class BadBodyError(ValueError):
    """A request body that can't be parsed."""


class ApiError(Exception):
    """A refusal, with the answer to send."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.encode().decode())
        self.answer = answer


def parse_call(method: str, target: str, headers: Mapping[str, str], raw: bytes, origin: str) -> Call:
    """Make a call from a received request."""
    parts = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    lowered = {name.lower(): value for name, value in headers.items()}
    return Call(method=method, path=unquote(parts.path), query=query, headers=lowered, raw=raw, origin=origin)
