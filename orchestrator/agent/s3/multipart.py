"""Uploads a large object to S3 in parts, a few at a time; the object appears atomically.

An upload has at most 10,000 parts of 5 MiB to 5 GiB (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
"""

from __future__ import annotations

import contextlib
import html
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .client import Client, S3Error
from .listing import find_text
from .retry import retry
from .xml import error_code, parse

PART_BYTES = 8 << 20
# The part size doubles after this many parts, because 10,000 parts of 8 MiB are only 78 GiB.
_DOUBLES_AFTER = 1000
_AT_ONCE = 4


def split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join chunks into parts; the last one may be small."""
    gathered = bytearray()
    number = 0
    for chunk in chunks:
        gathered += chunk
        while len(gathered) >= (size := part_bytes(number)):
            yield bytes(gathered[:size])
            del gathered[:size]
            number += 1
    if gathered:
        yield bytes(gathered)


def part_bytes(number: int) -> int:
    """Return a part's size; the first part is number 0."""
    return PART_BYTES << (number // _DOUBLES_AFTER)


def upload(client: Client, key: str, parts: Iterable[bytes]) -> None:
    """Upload parts and complete the upload; abort it on any failure.

    Raises:
        OSError: S3 can't be used.
    """
    query = {"uploadId": find_text(parse(client.call("POST", key, query={"uploads": ""}).body), "UploadId")}
    if not query["uploadId"]:
        raise OSError("S3 started an upload without an id")
    try:
        tags, size = _send(client, key, query, parts)
        _complete(client, key, query, tags, size)
    except BaseException:
        # If it can't be aborted now, the bucket's lifecycle rule does it.
        with contextlib.suppress(OSError):
            client.call("DELETE", key, query=query)
        raise


class _Sending(threading.Thread):
    """Sends one part, in a daemon thread: no upload may delay the end of a machine."""

    def __init__(self, send: Callable[[], str]) -> None:
        super().__init__(name="part", daemon=True)
        self._send = send
        self._tag = ""
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._tag = self._send()
        except Exception as err:  # noqa: BLE001 - raised again where it is waited for
            self._error = err

    def tag(self) -> str:
        self.join()
        if self._error is not None:
            raise self._error
        return self._tag


def _send(client: Client, key: str, query: dict[str, str], parts: Iterable[bytes]) -> tuple[list[str], int]:
    tags: list[str] = []
    size = 0
    sending: deque[_Sending] = deque()
    try:
        for number, part in enumerate(parts, 1):
            if len(sending) == _AT_ONCE:
                tags.append(sending.popleft().tag())
            size += len(part)
            sending.append(_Sending(_sender(client, key, {**query, "partNumber": str(number)}, part)))
        while sending:
            tags.append(sending.popleft().tag())
    finally:
        # A part that arrives after the abort would stay in the bucket.
        for one in sending:
            one.join()
    return tags, size


def _sender(client: Client, key: str, query: dict[str, str], part: bytes) -> Callable[[], str]:
    return lambda: client.call("PUT", key, query=query, body=part).headers["etag"]


def _complete(client: Client, key: str, query: dict[str, str], tags: list[str], size: int) -> None:
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(tag)}</ETag></Part>"
        for number, tag in enumerate(tags, 1)
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()

    def once() -> None:
        with client.begin("POST", key, query=query, body=body) as response:
            answer = response.read()
        if error_code(answer):
            # S3 answers 200 before the outcome is known (API Reference, "CompleteMultipartUpload").
            raise S3Error(500, "InternalError", f"POST {key}")

    try:
        retry(once, client.budget())
    except S3Error as err:
        # If the response to the first try was lost, the upload no longer exists, but the object does.
        if err.code != "NoSuchUpload" or not _is_there(client, key, size):
            raise


def _is_there(client: Client, key: str, size: int) -> bool:
    try:
        return client.call("HEAD", key).headers["content-length"] == str(size)
    except S3Error:
        return False
