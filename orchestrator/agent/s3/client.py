"""Sends signed requests to one S3 bucket, with retries. Small, because user-data carries it."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from .imds import Metadata, Role
from .retry import RetryBudget, retry
from .sigv4 import Request, render_query, sign

RETRY_SECONDS = 60.0
_TIMEOUT_SECONDS = 20.0
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
# Source: Amazon S3 API Reference, "Error Responses": those that say "try again", in addition to every 5xx.
_PASSING = (*_EXPIRED, "RequestTimeout", "SlowDown", "OperationAborted", "IncompleteBody")


class BucketPrefix(NamedTuple):
    """A prefix in a bucket: `s3://BUCKET/PREFIX?region=REGION[&endpoint=URL][&keys=FILE][&owner=ACCOUNT]`.

    Attributes:
        keys: a file with keys; without it, the machine's role is used.
        owner: the account that must own the bucket; else S3 refuses every request.
    """

    bucket: str
    prefix: str
    region: str
    endpoint: str
    keys: str = ""
    owner: str = ""


class HttpResponse(NamedTuple):
    """A whole successful response."""

    headers: Message
    body: bytes


class S3Error(OSError):
    """S3 refused a request; `code` is S3's error code, `region` the bucket's region, if S3 told."""

    def __init__(self, status: int, code: str, what: str, region: str = "") -> None:
        super().__init__(f"S3 answers {status} {code} to {what}")
        self.status = status
        self.code = code
        self.region = region


class Client:
    """A client for one bucket, with keep-alive connections. Thread-safe."""

    def __init__(self, place: BucketPrefix, *, retry_seconds: float = RETRY_SECONDS) -> None:
        metadata = Metadata()
        self._role = Role(metadata)
        if place.keys:
            from .keys_file import KeysFile  # noqa: PLC0415 - user-data does without

            self._role = KeysFile(place.keys)
        self._region = place.region or metadata.region()
        self._retry_seconds = retry_seconds
        self._owner = {"x-amz-expected-bucket-owner": place.owner} if place.owner else {}
        self._where = f"{place.bucket} of account {place.owner}" if place.owner else place.bucket
        self._tls: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []
        self._is_plain, self._host, self._base = locate(place._replace(region=self._region))

    def call(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request with retries, and return the response.

        Raises:
            S3Error: S3 refuses.
            OSError: S3 can't be reached, or keeps failing.
        """

        def once() -> HttpResponse:
            with self.begin(method, key, query=query, body=body, headers=headers) as response:
                return HttpResponse(response.headers, response.read())

        return retry(once, self.budget())

    def budget(self) -> RetryBudget:
        """Return a new retry budget for requests to this bucket."""
        return RetryBudget(self._retry_seconds, self._passes)

    @contextmanager
    def begin(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request once, and yield the response; the caller must read it to its end.

        Raises:
            S3Error: S3 refuses.
            OSError: S3 can't be reached, or the connection broke.
        """
        path = quote(f"{self._base}/{key}", safe="/-_.~")
        payload = hashlib.sha256(body).hexdigest()
        sent = {**(headers or {}), **self._owner, "host": self._host, "x-amz-content-sha256": payload}
        request = Request(method, path, render_query(query or {}), sent, payload)
        credentials = self._role.credentials()
        signed = sign(request, credentials, region=self._region, now=time.time()) if credentials.access_key else sent
        connection = self._take()
        try:
            connection.request(method, f"{path}?{request.query}" if request.query else path, body or None, signed)
            response = connection.getresponse()
            _refuse_errors(response, f"{method} {key} in {self._where}")
            yield response
        except http.client.HTTPException as err:
            connection.close()
            raise ConnectionError(f"the connection to S3 broke: {err!r}") from err
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _passes(self, err: Exception) -> bool:
        if not isinstance(err, S3Error):
            return not isinstance(err, FileNotFoundError)
        if err.code in _EXPIRED:
            self._role.forget()
        return err.status >= 500 or err.status == 429 or err.code in _PASSING

    def _take(self) -> http.client.HTTPConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_plain:
            return http.client.HTTPConnection(self._host, timeout=_TIMEOUT_SECONDS)
        self._tls = self._tls or ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_SECONDS, context=self._tls)


def parse_s3_url(url: str) -> BucketPrefix:
    """Parse a store's URL.

    Raises:
        ValueError: it isn't a valid S3 URL.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{url} is not of the form s3://BUCKET/PREFIX")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    names = ("region", "endpoint", "keys", "owner")
    return BucketPrefix(parts.netloc, parts.path.strip("/"), *(query.get(name, "") for name in names))


def locate(place: BucketPrefix) -> tuple[bool, str, str]:
    """Return whether a bucket is accessed without TLS, its host, and the prefix of its paths."""
    path = f"/{place.bucket}"
    if place.endpoint:
        url = urlsplit(place.endpoint)
        return url.scheme == "http", url.netloc, path
    host = f"s3.{place.region}.amazonaws.com"
    # The certificate of *.s3.REGION.amazonaws.com doesn't cover names with dots.
    return (False, host, path) if "." in place.bucket else (False, f"{place.bucket}.{host}", "")


def _refuse_errors(response: http.client.HTTPResponse, what: str) -> None:
    if response.status >= 300:
        code = _error_code(response.read(1 << 16)) or response.reason
        raise S3Error(response.status, code, what, response.headers.get("x-amz-bucket-region", ""))


def _error_code(answer: bytes) -> str:
    try:
        from .xml import error_code  # noqa: PLC0415 - user-data does without
    except ImportError:
        return answer.partition(b"<Code>")[2].partition(b"<")[0].decode(errors="replace")
    return error_code(answer)
