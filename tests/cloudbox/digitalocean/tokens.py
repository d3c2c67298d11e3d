"""Tokens of the account, and what each may do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from tests.cloudbox.digitalocean.call import ApiError

_EVERYTHING = frozenset({"*"})


class Tokens:
    """`main` may do everything; others are made with scopes, such as `droplet:delete`."""

    def __init__(self) -> None:
        self.main = _new_token()
        self._scopes = {self.main: _EVERYTHING}

    def make(self, *scopes: str) -> str:
        """Return a new token with custom scopes."""
        token = _new_token()
        self._scopes[token] = frozenset(scopes)
        return token

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


def _new_token() -> str:
    # As DigitalOcean's own look: what masks secrets in logs may know the form.
    return f"dop_v1_{secrets.token_hex(32)}"
