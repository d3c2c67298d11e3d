"""S3 as the object store."""

from __future__ import annotations

import html
import http.client
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from .files import join_bounded
from .multipart import split, upload
from .s3client import Client, S3Error, parse_place

_CHUNK_BYTES = 1 << 20
_LISTED = 1000


class S3Store:
    """An object store under a prefix of a bucket.

    Args:
        client: talks to the bucket, and knows for how long to be patient.
        prefix: of every key, without a slash at its end.
        page: keys that a listing asks for at once; 1,000 is S3's most.
    """

    def __init__(self, client: Client, prefix: str, *, page: int = _LISTED) -> None:
        self._client = client
        self._prefix = f"{prefix}/" if prefix else ""
        self._page = page

    def read(self, key: str) -> bytes | None:
        """Read a small object; None where there is none."""
        try:
            return join_bounded(self.get(key), key)
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a small object."""
        self._client.call("PUT", self._prefix + key, body=content)

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object, in parts where it is large; when `chunks` raises, nothing is written."""
        parts = split(chunks)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.write(key, first)
        else:
            upload(self._client, self._prefix + key, chain((first, second), parts))

    def get(self, key: str) -> Iterator[bytes]:
        """Read an object piece by piece; one that breaks off is gone on with where it did.

        Raises:
            FileNotFoundError: there is none.
            OSError: it can't be read, or has changed since it was begun.
        """
        download = _Download(self._client, self._prefix + key)
        patience = self._client.patience()
        while not download.is_complete:
            try:
                for chunk in download.go_on():
                    patience.renew()
                    yield chunk
            except (OSError, http.client.HTTPException) as err:
                if isinstance(err, S3Error) and err.code == "NoSuchKey":
                    raise FileNotFoundError(f"the store has no {key}") from err
                patience.wait(err)

    def keys(self, prefix: str) -> set[str]:
        """List the keys under a prefix that ends with a slash, one level deep."""
        query = {"list-type": "2", "delimiter": "/", "prefix": self._prefix + prefix, "max-keys": str(self._page)}
        found: set[str] = set()
        while True:
            listing = self._client.call("GET", "", query=query).body.decode()
            found.update(key.removeprefix(self._prefix) for key in _texts(listing, "Key"))
            more = _texts(listing, "NextContinuationToken")
            if not more:
                return found
            query = {**query, "continuation-token": more[0]}

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone is no error."""
        self._client.call("DELETE", self._prefix + key)


class _Download:
    """One object on its way here, over as many connections as it takes."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._received = 0
        self._bytes: int | None = None
        self._tag = ""

    @property
    def is_complete(self) -> bool:
        return self._received == self._bytes

    def go_on(self) -> Iterator[bytes]:
        """Read from where the last connection broke off."""
        headers = {"range": f"bytes={self._received}-", "if-match": self._tag} if self._received else {}
        with self._client.begin("GET", self._key, headers=headers) as response:
            if self._bytes is None:
                self._bytes = int(response.headers["content-length"])
                self._tag = response.headers["etag"]
            while chunk := response.read(_CHUNK_BYTES):
                self._received += len(chunk)
                yield chunk
            if not self.is_complete:
                raise ConnectionError(f"the connection broke off after {self._received} of {self._bytes} bytes")


def open_s3(url: str, run: str) -> S3Store:
    """Open a run's place in S3, with the role of the machine.

    Raises:
        OSError: the URL names no region, and the metadata service doesn't answer.
    """
    place = parse_place(url)
    return S3Store(Client(place), f"{place.prefix}/{run}".lstrip("/"))


def _texts(listing: str, name: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(f"<{name}>([^<]*)</{name}>", listing)]
