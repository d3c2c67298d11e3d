"""Tokens of the account, and what each may do."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from tests.cloudbox.digitalocean.account.call import ApiError

_EVERYTHING = frozenset({"*"})
_READS = {"droplet:read": ("actions:read", "image:read", "regions:read", "sizes:read")}
"""What scopes for reading require (docs.digitalocean.com/reference/api/scopes/droplet/read, 2026-11)."""


class Tokens:
    """`main` may do everything; others are made with scopes, such as `droplet:read`."""

    def __init__(self) -> None:
        self.main = _new_token()
        self._scopes = {self.main: _EVERYTHING}

    def make(self, *scopes: str) -> str:
        """Return a new token with custom scopes.

        Raises:
            ValueError: one requires another that is missing: the control panel makes no such token.
        """
        # fact: do-scopes-require-read
        if missing := sorted({need for scope in scopes for need in _required(scope)} - set(scopes)):
            raise ValueError(f"no token is made with {', '.join(scopes)}: it requires {', '.join(missing)}")
        token = _new_token()
        self._scopes[token] = frozenset(scopes)
        return token

    def adopt(self, token: str, *scopes: str) -> None:
        """Let a text of the test's own be a token with these scopes; without any, it may do everything."""
        self._scopes[token] = frozenset(scopes) or _EVERYTHING

    def revoke(self, token: str) -> None:
        """Let a token be worth nothing."""
        del self._scopes[token]

    def check(self, token: str, scopes: Sequence[str]) -> None:
        """Let a call pass that needs all of these scopes.

        Raises:
            ApiError: the token is unknown (401), or lacks one (403).
        """
        if token not in self._scopes:
            raise ApiError(401, "unauthorized", "Unable to authenticate you")
        held = self._scopes[token]
        if held != _EVERYTHING and not held.issuperset(scopes):
            raise ApiError(403, "forbidden", "You are not authorized to perform this operation")

    def reset(self) -> None:
        """Forget all tokens but the main one."""
        self._scopes = {self.main: _EVERYTHING}


def _required(scope: str) -> Iterator[str]:
    resource, _, deed = scope.partition(":")
    if deed != "read":
        yield f"{resource}:read"
        yield from _READS.get(f"{resource}:read", ())
    yield from _READS.get(scope, ())


def _new_token() -> str:
    # As DigitalOcean's own look: what masks secrets in logs may know the form.
    return f"dop_v1_{secrets.token_hex(32)}"
