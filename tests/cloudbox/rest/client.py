"""A client of a box that doesn't retry, follows no redirect, and returns any answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer as it was received."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.text)


class Client:
    """Calls one box with the same headers."""

    def __init__(self, url: str, ca_file: Path, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._pool = urllib3.PoolManager(ca_certs=str(ca_file), retries=False)

    def call(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, wait: float = 60
    ) -> Reply:
        """Make one call.

        Raises:
            urllib3.exceptions.HTTPError: there is no answer, or none within `wait` seconds.
        """
        raw = None if body is None else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        sent = self._headers | kind | dict(headers or {})
        reply = self._pool.request(method, self._url + path, body=raw, headers=sent, timeout=wait, redirect=False)
        return Reply(status=reply.status, headers=dict(reply.headers), text=reply.data.decode())

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()
