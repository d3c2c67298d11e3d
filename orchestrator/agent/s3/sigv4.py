"""Signs requests to AWS with Signature Version 4, in a header. Small, because user-data carries it.

Source: AWS, "Create a signed AWS API request" (IAM User Guide) and, for S3's single encoding of paths, "Signature
Calculations for the Authorization Header" (Amazon S3 API Reference), both read in November 2026.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    """A role's temporary credentials; `expires` is in Unix seconds, 0 for never."""

    access_key: str
    secret_key: str
    token: str = ""
    expires: float = 0.0


class Request(NamedTuple):
    """The parts of a request that are signed.

    Attributes:
        path: percent-encoded once, as it is sent.
        query: as rendered by `render_query`.
        headers: all are signed; must contain `host`.
        payload: SHA-256 of the body in hexadecimal, or UNSIGNED.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    payload: str


def render_query(query: Mapping[str, str]) -> str:
    """Encode a query in canonical form: sorted by name."""
    pairs = sorted((quote(name, safe="-_.~"), quote(text, safe="-_.~")) for name, text in query.items())
    return "&".join(f"{name}={text}" for name, text in pairs)


def sign(request: Request, credentials: Credentials, *, region: str, service: str = "s3", now: float) -> dict[str, str]:
    """Return the request's headers with `x-amz-date`, the session token and `authorization`."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers = {name.lower(): " ".join(text.split()) for name, text in request.headers.items()}
    headers["x-amz-date"] = stamp
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
    canonical = "\n".join([request.method, request.path, request.query, *lines, "", names, request.payload])
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for step in scope.split("/"):
        key = _hmac(key, step)
    signature = _hmac(key, text).hex()
    credential = f"{credentials.access_key}/{scope}"
    headers["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return headers


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
