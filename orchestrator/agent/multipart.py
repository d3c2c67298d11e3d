"""Upload a large object to S3 in parts, a few at a time; all of it appears at once, or nothing.

Parts may be of 5 MiB to 5 GiB, and 10,000 at most (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
"""

from __future__ import annotations

import contextlib
import html
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .s3client import Client, S3Error

PART_BYTES = 8 << 20
# Beyond every so many parts they double: 10,000 of 8 MiB would end at 78 GiB.
_DOUBLES_AFTER = 1000
_AT_ONCE = 4


def split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Gather chunks into parts; the last one may be small."""
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
    """Return how large a part is, the first being number 0."""
    return PART_BYTES << (number // _DOUBLES_AFTER)


def upload(client: Client, key: str, parts: Iterable[bytes]) -> None:
    """Upload parts, and make them one object; on any failure what was uploaded is thrown away.

    Raises:
        OSError: S3 can't be used.
    """
    begun = client.call("POST", key, query={"uploads": ""}).body.decode()
    found = re.search("<UploadId>([^<]*)</UploadId>", begun)
    if found is None:
        raise OSError("S3 began an upload without naming it")
    query = {"uploadId": html.unescape(found.group(1))}
    try:
        tags, size = _send(client, key, query, parts)
        _complete(client, key, query, tags, size)
    except BaseException:
        # What can't be thrown away now, the bucket's lifecycle does.
        with contextlib.suppress(OSError):
            client.call("DELETE", key, query=query)
        raise


class _Sending(threading.Thread):
    """One part on its way. A thread that dies with the process: no upload may hold up the end of a machine."""

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
        # A part that arrived after all was thrown away would stay.
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
        if b"<Error>" in answer:
            # S3 answers 200 before it knows (API Reference, "CompleteMultipartUpload").
            raise S3Error(500, "InternalError", f"POST {key}")

    try:
        client.patiently(once)
    except S3Error as err:
        # Where the answer to the first try was lost, there is no upload any more, but the object.
        if err.code != "NoSuchUpload" or not _is_there(client, key, size):
            raise


def _is_there(client: Client, key: str, size: int) -> bool:
    try:
        return client.call("HEAD", key).headers["content-length"] == str(size)
    except S3Error:
        return False
