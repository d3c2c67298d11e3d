"""Signed requests to one S3 bucket, retried within a bounded time. Small, as bootstrap.py says."""

from __future__ import annotations

import hashlib
import http.client
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

from .imds import Metadata, Role
from .sigv4 import Request, render_query, sign

_Result = TypeVar("_Result")

PATIENCE_SECONDS = 60.0
_TIMEOUT_SECONDS = 20.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
# Source: Amazon S3 API Reference, "Error Responses": those that say "try again", beside every 5xx.
_PASSING = (*_EXPIRED, "RequestTimeout", "SlowDown", "OperationAborted", "IncompleteBody")


class Place(NamedTuple):
    """Where in S3: `s3://BUCKET/PREFIX?region=REGION[&endpoint=URL][&keys=FILE][&owner=ACCOUNT]`.

    Attributes:
        keys: a file of keys; without it, the role opens the bucket.
        owner: the account whose bucket it must be; S3 refuses every request where it is another's.
    """

    bucket: str
    prefix: str
    region: str
    endpoint: str
    keys: str = ""
    owner: str = ""


class Answer(NamedTuple):
    """A whole answer; its status is one of success."""

    headers: Message
    body: bytes


class S3Error(OSError):
    """S3 said no; `code` is its own word for why, `region` where the bucket is, if S3 told."""

    def __init__(self, status: int, code: str, what: str, region: str = "") -> None:
        super().__init__(f"S3 answers {status} {code} to {what}")
        self.status = status
        self.code = code
        self.region = region


class Patience:
    """How long to go on trying, with growing pauses."""

    def __init__(self, seconds: float, passes: Callable[[Exception], bool]) -> None:
        self._seconds = seconds
        self._passes = passes
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._give_up = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_SECONDS

    def wait(self, err: Exception) -> None:
        """Pause before the next try.

        Raises:
            OSError: there should be none; it is `err`, or comes from it.
        """
        if not self._passes(err) or time.monotonic() + self._pause > self._give_up:
            raise err if isinstance(err, OSError) else OSError(f"S3 broke off: {err!r}") from err
        time.sleep(self._pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


class Client:
    """Talk to one bucket, over connections that are kept. For all threads."""

    def __init__(self, place: Place, *, patience: float = PATIENCE_SECONDS) -> None:
        metadata = Metadata()
        self._role = Role(metadata)
        if place.keys:
            from .keysfile import KeysFile  # noqa: PLC0415 - user-data does without

            self._role = KeysFile(place.keys)
        self._region = place.region or metadata.region()
        self._patience = patience
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
    ) -> Answer:
        """Send a request and return its answer.

        Raises:
            S3Error: S3 said no.
            OSError: it can't be reached, or kept failing.
        """

        def once() -> Answer:
            with self.begin(method, key, query=query, body=body, headers=headers) as response:
                return Answer(response.headers, response.read())

        return self.patiently(once)

    def patiently(self, action: Callable[[], _Result]) -> _Result:
        """Try again what fails for a reason that passes.

        Raises:
            OSError: the reason doesn't pass, or didn't in time.
        """
        patience = self.patience()
        while True:
            try:
                return action()
            except (OSError, http.client.HTTPException) as err:
                patience.wait(err)

    def patience(self) -> Patience:
        """Begin to be patient."""
        return Patience(self._patience, self._passes)

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
        """Send a request once, and give the answer to be read to its end."""
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
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that are kept."""
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


def parse_place(url: str) -> Place:
    """Parse a store's URL.

    Raises:
        ValueError: it names no bucket of S3.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{url} is no s3://BUCKET/PREFIX")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    names = ("region", "endpoint", "keys", "owner")
    return Place(parts.netloc, parts.path.strip("/"), *(query.get(name, "") for name in names))


def locate(place: Place) -> tuple[bool, str, str]:
    """Return whether a place is reached without TLS, its host, and what its paths begin with."""
    path = f"/{place.bucket}"
    if place.endpoint:
        url = urlsplit(place.endpoint)
        return url.scheme == "http", url.netloc, path
    host = f"s3.{place.region}.amazonaws.com"
    # The certificate of *.s3.REGION.amazonaws.com covers no name with dots.
    return (False, host, path) if "." in place.bucket else (False, f"{place.bucket}.{host}", "")


def _refuse_errors(response: http.client.HTTPResponse, what: str) -> None:
    if response.status >= 300:
        found = re.search(rb"<Code>([^<]*)</Code>", response.read(1 << 16))
        code = found.group(1).decode() if found else response.reason
        raise S3Error(response.status, code, what, response.headers.get("x-amz-bucket-region", ""))
