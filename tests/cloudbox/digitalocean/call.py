"""A request as the box's rules see it, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(slots=True, kw_only=True)
class Call:
    """One request; `params` are the parts of its path that the route names."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes
    origin: str
    """Scheme and host, for the links between pages."""
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """Return the body's fields.

        Raises:
            ApiError: it isn't a JSON object.
        """
        try:
            fields = json.loads(self.raw or b"{}")
        except ValueError as err:
            raise ApiError(400, "bad_request", "the body is not JSON") from err
        if not isinstance(fields, dict):
            raise ApiError(400, "bad_request", "the body is not an object")
        return fields

    @property
    def token(self) -> str:
        """Return the bearer token, empty where there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def number(self, name: str) -> int:
        """Return a part of the path as a number.

        Raises:
            ApiError: it isn't one, so there is no such thing.
        """
        if not self.params[name].isdecimal():
            raise not_found()
        return int(self.params[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back; `body` None is no content."""

    status: int = 200
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the body as it is sent."""
        return b"" if self.body is None else json.dumps(self.body).encode()


NO_CONTENT = Answer(status=204)


class ApiError(Exception):
    """A refusal: a status and a body with an id and a sentence."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.answer = Answer(status=status, body={"id": code, "message": message}, headers=headers or {})


def not_found() -> ApiError:
    """Return the refusal of what isn't there."""
    return ApiError(404, "not_found", "The resource you were accessing could not be found.")


def unprocessable(message: str) -> ApiError:
    """Return the refusal of what can't be done."""
    return ApiError(422, "unprocessable_entity", message)


def parse_call(method: str, target: str, headers: Mapping[str, str], raw: bytes, origin: str) -> Call:
    """Make a call of what came in."""
    parts = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    lowered = {name.lower(): value for name, value in headers.items()}
    return Call(method=method, path=unquote(parts.path), query=query, headers=lowered, raw=raw, origin=origin)
