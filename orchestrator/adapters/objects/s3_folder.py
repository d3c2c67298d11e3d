"""One prefix of an S3 bucket, with the SDK's errors in our words."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

from orchestrator.adapters.aws_sdk import REFUSED, SIGN_IN, code_of, translate
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.errors import KedgeError, UnreachableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_CHUNK = 1 << 20
_CUTS = 4
"""How often in a row a download may break before a single byte has come."""
_FORBIDDEN = frozenset({"403", "AccessDenied"})
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_MAKE = "make it with `kedge bootstrap --provider aws`; for Spaces see KEDGE_SPACES_BUCKET"
_OPEN = f"{SIGN_IN}; for Spaces set SPACES_ACCESS_KEY_ID and SPACES_SECRET_ACCESS_KEY"
_DELETED_AT_ONCE = 1000  # DeleteObjects, Amazon S3 API Reference, 2026-11
_PAST_THE_END = frozenset({"416", "InvalidRange"})
# The `crt` client would silently go to Amazon whatever endpoint is set.
_TRANSFER = TransferConfig(preferred_transfer_client="classic", multipart_chunksize=16 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Folder:
    """Implements `Bucket`, and writes too. Every content that goes up carries its SHA-256, which S3 verifies.

    Attributes:
        prefix: without a slash at its end.
    """

    client: S3Client
    bucket: str
    prefix: str

    def read(self, key: str, most: int) -> bytes | None:
        """Read a small object, or one byte more than `most` of a larger one; None where there is none.

        Raises:
            KedgeError: it is larger than any that is read whole, or the bucket can't be used.
        """
        try:
            with explained(f"{self.where(key)} can't be read"):
                return self.client.get_object(Bucket=self.bucket, Key=self.key(key))["Body"].read(most + 1)
        except FileNotFoundError:
            return None

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object from an offset on; a connection that breaks is made again where it broke.

        Raises:
            FileNotFoundError: there is none.
            UnreachableError: it breaks again and again.
            KedgeError: the bucket can't be used.
        """
        cuts = 0
        with explained(f"{self.where(key)} can't be read"):
            while True:
                try:
                    for chunk in self._body(key, start):
                        start, cuts = start + len(chunk), 0
                        yield chunk
                except (HTTPClientError, IncompleteReadError):
                    cuts += 1
                    if cuts > _CUTS:
                        raise
                else:
                    return

    def has(self, key: str, content: IO[bytes]) -> bool:
        """Tell, in one request, whether an object holds this content, which `write` or `upload` has put there.

        Stores that keep no checksums never say so.

        Raises:
            KedgeError: the bucket can't be used.
        """
        try:
            with explained(f"{self.where(key)} can't be looked up"):
                found = self.client.head_object(Bucket=self.bucket, Key=self.key(key), ChecksumMode="ENABLED")
        except FileNotFoundError:
            return False
        size, digest = _describe(content)
        # Of parts it says how many there are, too.
        return found["ContentLength"] == size and found.get("ChecksumSHA256", "").partition("-")[0] == digest

    def write(self, key: str, content: bytes) -> None:
        """Write an object in one request.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with explained(f"{self.where(key)} can't be written"):
            self.client.put_object(Bucket=self.bucket, Key=self.key(key), Body=content, ChecksumAlgorithm="SHA256")

    def upload(self, key: str, file: Path, tally: Tally) -> None:
        """Write an object of any size, in parts; cut at any instant there is none.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with explained(f"{self.where(key)} can't be written"), file.open("rb") as content:
            self.client.upload_fileobj(
                content,
                self.bucket,
                self.key(key),
                ExtraArgs={"ChecksumAlgorithm": "SHA256"},
                Callback=tally.add,
                Config=_TRANSFER,
            )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that is gone is no error.

        Raises:
            KedgeError: the bucket can't be used.
        """
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            named: list[ObjectIdentifierTypeDef] = [
                {"Key": self.key(key)} for key in keys[start : start + _DELETED_AT_ONCE]
            ]
            with explained(f"objects of {self.where('')} can't be deleted"):
                answer = self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": named, "Quiet": True})
            if kept := answer.get("Errors"):
                raise KedgeError(f"{self.where('')} still has {len(kept)} objects", why=kept[0].get("Message", ""))

    def remove(self, prefix: str) -> None:
        """Remove every object whose key begins so; where there is none it is no error.

        Raises:
            KedgeError: the bucket can't be used.
        """
        with explained(f"{self.where(prefix)} can't be listed"):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.key(prefix))
            keys = [row["Key"].removeprefix(self.key("")) for page in pages for row in page.get("Contents", ())]
        self.delete(keys)

    def where(self, key: str) -> str:
        """Say where an object lies, for a person."""
        return f"s3://{self.bucket}/{self.key(key)}"

    def key(self, key: str) -> str:
        """Return the whole key of an object of this folder."""
        return f"{self.prefix}/{key}"

    def _body(self, key: str, start: int) -> Iterator[bytes]:
        where = {"Range": f"bytes={start}-"} if start else {}
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=self.key(key), **where)  # type: ignore[arg-type]
        except ClientError as err:
            if code_of(err) in _PAST_THE_END:
                return iter(())
            raise
        return answer["Body"].iter_chunks(_CHUNK)


def _describe(content: IO[bytes]) -> tuple[int, str]:
    """Return the size of a content, and the checksum that S3 keeps of it: sent in one piece, or in `_TRANSFER`'s parts.

    Source: Amazon S3 User Guide, "Checking object integrity", composite checksums: the SHA-256 of the parts' SHA-256.
    """
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    if size < _TRANSFER.multipart_threshold:
        digest = hashlib.sha256(content.read())
    else:
        parts = iter(partial(content.read, _TRANSFER.multipart_chunksize), b"")
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return size, base64.b64encode(digest.digest()).decode()


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Translate what the SDK raises.

    Raises:
        FileNotFoundError: there is no such object.
        KedgeError: anything else.
    """
    try:
        yield
    except ClientError as err:
        if code_of(err) in _MISSING:
            raise FileNotFoundError(what) from err
        if code_of(err) == "NoSuchBucket":
            raise KedgeError(what, why="there is no such bucket", fix=_MAKE) from err
        if code_of(err) in _FORBIDDEN:
            raise KedgeError(
                what,
                why=f"S3 answered {err.operation_name} with {code_of(err)}: the bucket isn't this account's "
                "(any more), or these credentials may not use it",
                fix=f"have an administrator allow {err.operation_name}, or use another profile; if somebody else has "
                "taken the bucket's name, bootstrap again with another --bucket",
            ) from err
        if code_of(err) in REFUSED:
            raise KedgeError(what, why=f"the object store doesn't accept the keys ({code_of(err)})", fix=_OPEN) from err
        raise translate(err, what) from err
    except IncompleteReadError as err:
        raise UnreachableError(
            what, why=f"the connection broke: {err}", fix="run the command again: it goes on from where it was"
        ) from err
    except BotoCoreError as err:
        raise translate(err, what) from err
