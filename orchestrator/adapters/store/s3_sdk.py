"""Everything for S3 buckets that needs Amazon's SDK: clients, transfers, and the translation of errors."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.session import Session

from orchestrator.adapters.aws_answers import check_answers
from orchestrator.adapters.aws_sdk import REFUSED, SIGN_IN, code_of, translate
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.errors import ConflictError, KedgeError, UnreachableError

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client

_CHUNK = 1 << 20
_CUTS = 4
"""How often in a row a download may break without a single byte received."""
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_CHECKSUMS = ("ChecksumAlgorithm", "ChecksumMode", "ChecksumSHA256", "ChecksumCRC32")
_BEFORE_PARAMETERS = "before-parameter-build.s3"
_OWNER = "ExpectedBucketOwner"
_FORBIDDEN = frozenset({"403", "AccessDenied"})
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_OVERTAKEN = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})
_PAST_THE_END = frozenset({"416", "InvalidRange"})
# The `crt` client would silently go to Amazon, even if another endpoint is set.
_TRANSFER = TransferConfig(preferred_transfer_client="classic", multipart_chunksize=16 << 20)


def make_client(settings: S3Settings) -> S3Client:
    """Create the client for a bucket with keys; nothing is contacted."""
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 3},
        # Stores other than Amazon's refuse the trailing checksums that the SDK sends by default since 1.36.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    core = Session()
    check_answers(core)
    session = boto3.Session(
        botocore_session=core, aws_access_key_id=settings.access_key, aws_secret_access_key=settings.secret_key
    )
    client: S3Client = session.client("s3", region_name=settings.region, endpoint_url=settings.endpoint, config=config)
    if not settings.has_checksums:
        client.meta.events.register(_BEFORE_PARAMETERS, _drop_checksums)
        client.meta.events.register("before-sign.s3.DeleteObjects", _prefer_md5)
    return client


def name_owner(client: S3Client, account_id: str) -> S3Client:
    """Add the expected owner to every request for a bucket, also to parts of uploads, listings and deletions.

    Bucket names are global, and a stranger may take a name that was given up. S3 refuses requests that expect another
    owner, so nothing is ever sent to, or read from, a stranger's bucket.
    """

    def add_owner(params: dict[str, Any], model: OperationModel, **_rest: object) -> None:
        if model.input_shape is not None and _OWNER in model.input_shape.members:
            params[_OWNER] = account_id

    # A client may be reused; a second registration of the same name is ignored.
    client.meta.events.register(_BEFORE_PARAMETERS, add_owner, unique_id=f"kedge-{_OWNER}")
    return client


def try_bucket(connection: S3Connection) -> str:
    """Check that the keys can use the bucket, and return its address.

    Raises:
        KedgeError: they can't, or there is no such bucket.
    """
    client, settings = connection
    try:
        client.head_bucket(Bucket=settings.bucket)
    except (BotoCoreError, ClientError) as err:
        raise KedgeError(
            f"the {settings.kind} bucket {settings.bucket} can't be opened",
            why=f"{settings.endpoint}: {err}",
            fix=settings.if_missing,
        ) from err
    return f"{settings.bucket} at {settings.endpoint}"


def stream_object(client: S3Client, bucket: str, key: str, start: int) -> Iterator[bytes]:
    """Yield an object in chunks, from a byte offset on; if the connection breaks, resume there.

    Raises:
        HTTPClientError: the connection breaks repeatedly.
        IncompleteReadError: likewise.
        ClientError: it doesn't exist, or can't be read.
    """
    cuts = 0
    while True:
        try:
            for chunk in _body(client, bucket, key, start):
                start, cuts = start + len(chunk), 0
                yield chunk
        except (HTTPClientError, IncompleteReadError):
            cuts += 1
            if cuts > _CUTS:
                raise
        else:
            return


def upload_file(client: S3Client, bucket: str, key: str, file: Path, progress: TransferProgress) -> None:
    """Upload a file of any size, a large one in parts; each part carries its SHA-256."""
    with file.open("rb") as content:
        client.upload_fileobj(
            content,
            bucket,
            key,
            ExtraArgs={"ChecksumAlgorithm": "SHA256"},
            Callback=progress.add,
            Config=_TRANSFER,
        )


def describe_content(content: IO[bytes]) -> tuple[int, str]:
    """Return a content's size, and the checksum that S3 stores for it after an upload, whole or in `_TRANSFER`'s parts.

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
def translated(what: str, settings: S3Settings) -> Iterator[None]:
    """Translate the SDK's errors.

    Raises:
        FileNotFoundError: there is no such object.
        ConflictError: its etag isn't the one in the request.
        KedgeError: anything else.
    """
    try:
        yield
    except ClientError as err:
        raise _explain(err, what, settings) from err
    except IncompleteReadError as err:
        raise UnreachableError(
            what, why=f"the connection broke: {err}", fix="run the command again: it continues where it stopped"
        ) from err
    except BotoCoreError as err:
        raise translate(err, what) from err


def _explain(err: ClientError, what: str, settings: S3Settings) -> Exception:
    code = code_of(err)
    if code in _MISSING:
        return FileNotFoundError(what)
    if code in _OVERTAKEN:
        return ConflictError(what, why="somebody else has written it")
    if code == "NoSuchBucket":
        return KedgeError(what, why="there is no such bucket", fix=settings.if_missing)
    if code in _FORBIDDEN:
        return KedgeError(
            what,
            why=f"S3 answered {err.operation_name} with {code}: the bucket isn't this account's "
            "(any more), or these credentials may not use it",
            fix=f"have an administrator allow {err.operation_name}, or use another profile; if somebody else has "
            "taken the bucket's name, bootstrap again with another --bucket",
        )
    if code in REFUSED:
        fix = settings.if_refused or SIGN_IN
        return KedgeError(what, why=f"the object store doesn't accept the keys ({code})", fix=fix)
    return translate(err, what)


def _body(client: S3Client, bucket: str, key: str, start: int) -> Iterator[bytes]:
    where = {"Range": f"bytes={start}-"} if start else {}
    try:
        answer = client.get_object(Bucket=bucket, Key=key, **where)  # type: ignore[arg-type]
    except ClientError as err:
        if code_of(err) in _PAST_THE_END:
            return iter(())
        raise
    return answer["Body"].iter_chunks(_CHUNK)


def _drop_checksums(params: dict[str, Any], **_: object) -> None:
    """Remove checksums, which the store may not support; its objects are named by SHA-256 and verified when read."""
    for name in _CHECKSUMS:
        params.pop(name, None)


def _prefer_md5(request: AWSRequest, **_: object) -> None:
    """Replace the SDK's checksum with the MD5 that stores have always required for this call."""
    for name in ("x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"):
        del request.headers[name]
    body: Any = request.body
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()
