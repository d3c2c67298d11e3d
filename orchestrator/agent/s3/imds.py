"""A client of AWS's instance metadata service (IMDSv2), with short timeouts. Small, because user-data carries it.

Source: Amazon EC2 User Guide, "Use the Instance Metadata Service", read in November 2026.
"""

from __future__ import annotations

import calendar
import json
import os
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from .sigv4 import Credentials

ENDPOINT = "http://169.254.169.254"
ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_TIMEOUT_SECONDS = 2.0
_TOKEN_SECONDS = 21_600
# New ones are available five minutes before the old ones expire (EC2 User Guide, "IAM roles for Amazon EC2").
_REFRESH_SECONDS = 300.0
_DATA = "/latest/meta-data/"


class Metadata:
    """The service's client. Not thread-safe."""

    def __init__(self, endpoint: str = "") -> None:
        url = urlsplit(endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT)
        self._host = url.netloc
        self._token = ""

    def get(self, path: str) -> str | None:
        """Read a path under /latest/meta-data/; None if it doesn't exist.

        Raises:
            OSError: the service can't be reached, or refuses.
        """
        if not self._token:
            self._renew_token()
        status, text = self._ask("GET", _DATA + path, {"X-aws-ec2-metadata-token": self._token})
        if status == 401:
            self._renew_token()
            status, text = self._ask("GET", _DATA + path, {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status != 200:
            raise OSError(f"the metadata service answers {status} for {path}")
        return text

    def region(self) -> str:
        """Return the machine's region; empty if unknown."""
        return self.get("placement/region") or ""

    def credentials(self) -> Credentials:
        """Return the role's current credentials.

        Raises:
            OSError: there are none, or not yet.
        """
        folder = "iam/security-credentials/"
        role = (self.get(folder) or "").split("\n")[0].strip()
        content = load_object(self.get(folder + role) if role else None)
        try:
            expires = parse_time(content["Expiration"])
            return Credentials(content["AccessKeyId"], content["SecretAccessKey"], content["Token"], expires)
        except (KeyError, TypeError, ValueError) as err:
            raise OSError("this machine has no role's credentials (yet)") from err

    def _renew_token(self) -> None:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        status, text = self._ask("PUT", "/latest/api/token", lifetime)
        if status != 200:
            raise OSError(f"the metadata service gives no token: {status}")
        self._token = text

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - only machines at AWS ask

        connection = HTTPConnection(self._host, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except HTTPException as err:
            raise OSError(f"the metadata service doesn't speak HTTP: {err!r}") from err
        finally:
            connection.close()


class Role:
    """The credentials of the machine's role, cached until they are about to expire. Thread-safe."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._kept: Credentials | None = None
        self._lock = threading.Lock()

    def credentials(self) -> Credentials:
        """Return valid credentials.

        Raises:
            OSError: there are none, or not yet.
        """
        with self._lock:
            kept = self._kept
            if kept is None or time.time() > kept.expires - _REFRESH_SECONDS:
                try:
                    self._kept = kept = self._metadata.credentials()
                except OSError:
                    if kept is None or time.time() > kept.expires:
                        raise
            return kept

    def forget(self) -> None:
        """Drop the cached credentials, because they have expired."""
        self._kept = None


def parse_time(text: str) -> float:
    """Return Unix seconds of a time such as 2026-11-21T08:22:00Z."""
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def load_object(text: str | None) -> dict[str, Any]:
    """Parse a JSON object; empty if it isn't one."""
    try:
        content = json.loads(text or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
