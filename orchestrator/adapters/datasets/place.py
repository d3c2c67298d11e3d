"""Where one data set lies in the bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from botocore.exceptions import ClientError

from orchestrator.adapters.aws_sdk import code_of
from orchestrator.adapters.datasets.index import INDEX, INDEX_BYTES, SHARDS
from orchestrator.adapters.objects.s3_folder import S3Folder, explained
from orchestrator.core.errors import ConflictError

_OVERTAKEN = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict", "404", "NoSuchKey"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """An index as it lies in the bucket; no content and no etag where there is none."""

    content: bytes = b""
    etag: str = ""


class Place:
    """One data set's objects."""

    def __init__(self, folder: S3Folder) -> None:
        self._folder = folder

    @property
    def where(self) -> str:
        """Say where it lies, for a person."""
        return self._folder.where("")

    def read_index(self, known_etag: str) -> StoredIndex | None:
        """Read the index; None where it is the known one, which one request tells.

        Raises:
            KedgeError: the bucket can't be used.
        """
        try:
            with explained(f"{self._folder.where(INDEX)} can't be read"):
                if known_etag and self._etag() == known_etag:
                    return None
                return self._get_index()
        except FileNotFoundError:
            return StoredIndex()

    def write_index(self, content: bytes, replaced: StoredIndex) -> str:
        """Replace the index and return its etag, unless somebody else has replaced it.

        Raises:
            ConflictError: somebody else has.
            KedgeError: the bucket can't be used.
        """
        condition = {"IfMatch": replaced.etag} if replaced.etag else {"IfNoneMatch": "*"}
        with explained(f"{self._folder.where(INDEX)} can't be written"):
            try:
                return self._put_index(content, condition)
            except ClientError as err:
                if code_of(err) not in _OVERTAKEN:
                    raise
                raise ConflictError(
                    f"{self._folder.where('')} was changed while data was sent to it",
                    why="another `sync-data` writes to the same place",
                    fix="run the command again when the other is done: what was sent isn't sent again",
                ) from err

    def write_shard(self, name: str, content: bytes) -> None:
        """Write one shard. S3 verifies the SDK's CRC32 of it; the machine verifies the SHA-256 of every piece.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with explained(f"{self._folder.where(SHARDS + name)} can't be written"):
            self._folder.client.put_object(
                Bucket=self._folder.bucket,
                Key=self._folder.key(SHARDS + name),
                Body=content,
                ChecksumAlgorithm="CRC32",
            )

    def list_shards(self) -> dict[str, datetime]:
        """List the shards that are there, and when each was written.

        Raises:
            KedgeError: the bucket can't be used.
        """
        prefix = self._folder.key(SHARDS)
        with explained(f"{self._folder.where(SHARDS)} can't be listed"):
            pages = self._folder.client.get_paginator("list_objects_v2").paginate(
                Bucket=self._folder.bucket, Prefix=prefix
            )
            rows = [row for page in pages for row in page.get("Contents", ())]
        return {row["Key"].removeprefix(prefix): row["LastModified"] for row in rows}

    def delete_shards(self, names: Sequence[str]) -> None:
        """Delete shards; one that is gone is no error.

        Raises:
            KedgeError: the bucket can't be used.
        """
        self._folder.delete([SHARDS + name for name in names])

    def _etag(self) -> str:
        # Not a conditional GET: the SDK fails to read a "304 Not Modified" that carries a checksum (botocore 1.44).
        return self._folder.client.head_object(Bucket=self._folder.bucket, Key=self._folder.key(INDEX))["ETag"]

    def _get_index(self) -> StoredIndex:
        found = self._folder.client.get_object(Bucket=self._folder.bucket, Key=self._folder.key(INDEX))
        return StoredIndex(content=found["Body"].read(INDEX_BYTES + 1), etag=found["ETag"])

    def _put_index(self, content: bytes, condition: Mapping[str, str]) -> str:
        where = {"Bucket": self._folder.bucket, "Key": self._folder.key(INDEX)}
        answer = self._folder.client.put_object(**where, Body=content, ChecksumAlgorithm="SHA256", **condition)  # type: ignore[arg-type]
        return str(answer["ETag"])
