"""The object store on S3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ..base.files import join_bounded
from .client import Client, S3Error, parse_s3_url
from .listing import MOST_LISTED, list_objects
from .multipart import split, upload

_CHUNK_BYTES = 1 << 20


class S3Store:
    """An object store under a prefix of a bucket.

    Args:
        client: the bucket's client, which has the retry budget.
        prefix: the prefix of every key, without a trailing slash.
        page: keys per page of a listing; S3's maximum is 1,000.
    """

    def __init__(self, client: Client, prefix: str, *, page: int = MOST_LISTED) -> None:
        self._client = client
        self._prefix = f"{prefix}/" if prefix else ""
        self._page = page

    def read(self, key: str) -> bytes | None:
        """Read a small object; None if it doesn't exist."""
        try:
            return join_bounded(self.get(key), key)
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a small object."""
        self._client.call("PUT", self._prefix + key, body=content)

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object, in parts if it is large; if `chunks` raises, nothing is written."""
        parts = split(chunks)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.write(key, first)
        else:
            upload(self._client, self._prefix + key, chain((first, second), parts))

    def get(self, key: str) -> Iterator[bytes]:
        """Read an object in chunks; resume after a broken connection.

        Raises:
            FileNotFoundError: it doesn't exist.
            OSError: it can't be read, or has changed since the start of the download.
        """
        download = _Download(self._client, self._prefix + key)
        budget = self._client.budget()
        while not download.is_complete:
            try:
                for chunk in download.go_on():
                    budget.renew()
                    yield chunk
            except OSError as err:
                if isinstance(err, S3Error) and err.code == "NoSuchKey":
                    raise FileNotFoundError(f"the store has no {key}") from err
                budget.wait(err)

    def keys(self, prefix: str) -> set[str]:
        """List the keys under a prefix that ends with a slash, one level deep."""
        listed = list_objects(self._client, self._prefix + prefix, page=self._page, delimiter="/")
        return {key.removeprefix(self._prefix) for key, _ in listed}

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""
        self._client.call("DELETE", self._prefix + key)


class _Download:
    """The download of one object, over as many connections as necessary."""

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
        """Read from where the last connection broke."""
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
    """Open a run's prefix in S3, with the machine's role.

    Raises:
        OSError: the URL has no region, and the metadata service doesn't answer.
    """
    place = parse_s3_url(url)
    return S3Store(Client(place), f"{place.prefix}/{run}".lstrip("/"))
