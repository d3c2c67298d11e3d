"""An S3 bucket as the object store. It is opened at its first use: until then, no SDK is loaded and nothing contacted.

Amazon's S3 verifies and stores a checksum for each upload; other stores don't, and are sent none (`s3_sdk`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.adapters.store.object_store import StoredObject
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.errors import ConflictError, KedgeError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_DELETED_AT_ONCE = 1000  # DeleteObjects, Amazon S3 API Reference, 2026-11


class S3Bucket:
    """Implements `ObjectStore`: one prefix of a bucket.

    Args:
        connect: opens the bucket; called once, at its first use.
        prefix: the common prefix of all keys, without a slash at its end.
    """

    # A connection reaches 50 to 100 MB/s (Amazon S3 User Guide, "Performance guidelines", 2026-11); the SDK keeps ten.
    workers = 8

    def __init__(self, connect: Callable[[], S3Connection], prefix: str) -> None:
        self._connect = connect
        self._prefix = prefix

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._settings.bucket

    @property
    def url(self) -> str:
        """The URL that machines get: with the region, and the endpoint if it isn't Amazon's."""
        return self._settings.url(self._prefix)

    def where(self, key: str) -> str:
        """Return an object's address, for messages."""
        return f"s3://{self.name}/{self._key(key)}"

    def read(self, key: str, most: int) -> StoredObject | None:
        """Read a small object, or `most` + 1 bytes of a larger one; None if it doesn't exist.

        Raises:
            KedgeError: the bucket can't be used.
        """
        try:
            with self._asking(f"{self.where(key)} can't be read") as client:
                found = client.get_object(Bucket=self.name, Key=self._key(key))
                return StoredObject(content=found["Body"].read(most + 1), etag=found["ETag"])
        except FileNotFoundError:
            return None

    def etag(self, key: str) -> str:
        """Return an object's etag; empty if it doesn't exist.

        Raises:
            KedgeError: the bucket can't be used.
        """
        # Not a conditional GET: the SDK fails to read a "304 Not Modified" that carries a checksum (botocore 1.44).
        try:
            with self._asking(f"{self.where(key)} can't be read") as client:
                return client.head_object(Bucket=self.name, Key=self._key(key))["ETag"]
        except FileNotFoundError:
            return ""

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object in chunks, from a byte offset on; if the connection breaks, resume there.

        Raises:
            FileNotFoundError: it doesn't exist.
            UnreachableError: the connection breaks repeatedly.
            KedgeError: the bucket can't be used.
        """
        from orchestrator.adapters.store.s3_sdk import stream_object  # noqa: PLC0415 - it loads the SDK

        with self._asking(f"{self.where(key)} can't be read") as client:
            yield from stream_object(client, self.name, self._key(key), start)

    def has(self, key: str, content: IO[bytes]) -> bool:
        """Tell, in one request, whether an object has this content, as written by `write` or `upload`.

        Always False for stores that keep no checksums.

        Raises:
            KedgeError: the bucket can't be used.
        """
        from orchestrator.adapters.store.s3_sdk import describe_content  # noqa: PLC0415 - it loads the SDK

        try:
            with self._asking(f"{self.where(key)} can't be looked up") as client:
                found = client.head_object(Bucket=self.name, Key=self._key(key), ChecksumMode="ENABLED")
        except FileNotFoundError:
            return False
        size, digest = describe_content(content)
        # The checksum of an object in parts ends with their number.
        return found["ContentLength"] == size and found.get("ChecksumSHA256", "").partition("-")[0] == digest

    def list(self, prefix: str) -> dict[str, datetime]:
        """List the keys with a prefix, and when each was written.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with self._asking(f"{self.where(prefix)} can't be listed") as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=self._key(prefix))
            rows = [row for page in pages for row in page.get("Contents", ())]
        return {row["Key"].removeprefix(self._key("")): row["LastModified"] for row in rows}

    def write(self, key: str, content: bytes, *, for_has: bool = True) -> None:
        """Write an object in one request, with a CRC32 if its SHA-256 isn't needed for `has`.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with self._asking(f"{self.where(key)} can't be written") as client:
            client.put_object(
                Bucket=self.name,
                Key=self._key(key),
                Body=content,
                ChecksumAlgorithm="SHA256" if for_has else "CRC32",
            )

    def replace(self, key: str, content: bytes, etag: str) -> str:
        """Replace an object if it still has this etag, or create it if the etag is empty; return the new etag.

        Raises:
            ConflictError: it has been written meanwhile.
            KedgeError: the bucket can't be used.
        """
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        what = f"{self.where(key)} can't be written"
        try:
            with self._asking(what) as client:
                answer = client.put_object(
                    Bucket=self.name,
                    Key=self._key(key),
                    Body=content,
                    ChecksumAlgorithm="SHA256",
                    **condition,  # type: ignore[arg-type]
                )
                return str(answer["ETag"])
        except FileNotFoundError as err:
            raise ConflictError(what, why="somebody else has deleted it") from err

    def upload(self, key: str, file: Path, progress: TransferProgress) -> None:
        """Write an object of any size, in parts; an interrupted upload leaves no object.

        Raises:
            KedgeError: the bucket can't be used.
        """
        from orchestrator.adapters.store.s3_sdk import upload_file  # noqa: PLC0415 - it loads the SDK

        with self._asking(f"{self.where(key)} can't be written") as client:
            upload_file(client, self.name, self._key(key), file, progress)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored.

        Raises:
            KedgeError: the bucket can't be used.
        """
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            named: list[ObjectIdentifierTypeDef] = [
                {"Key": self._key(key)} for key in keys[start : start + _DELETED_AT_ONCE]
            ]
            with self._asking(f"objects of {self.where('')} can't be deleted") as client:
                answer = client.delete_objects(Bucket=self.name, Delete={"Objects": named, "Quiet": True})
            if kept := answer.get("Errors"):
                raise KedgeError(f"{self.where('')} still has {len(kept)} objects", why=kept[0].get("Message", ""))

    def remove(self, folder: str) -> None:
        """Remove every object in a folder; a missing one is ignored.

        Raises:
            KedgeError: the bucket can't be used.
        """
        self.delete(list(self.list(folder)))

    @cached_property
    def _connection(self) -> S3Connection:
        return self._connect()

    @property
    def _settings(self) -> S3Settings:
        return self._connection.settings

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[S3Client]:
        """Yield the client, and translate its errors."""
        from orchestrator.adapters.store.s3_sdk import translated  # noqa: PLC0415 - it loads the SDK

        client, settings = self._connection
        with translated(what, settings):
            yield client


def connect_with_keys(settings: S3Settings) -> S3Connection:
    """Load the SDK, and create the client for a bucket with keys; nothing is contacted.

    Raises:
        BadRequestError: the keys aren't set.
    """
    settings.require_keys()
    from orchestrator.adapters.store.s3_sdk import make_client  # noqa: PLC0415 - it loads the SDK

    return S3Connection(make_client(settings), settings)
