"""A bucket of DigitalOcean's Spaces as the object store of runs: S3's protocol at an endpoint of its own.

Spaces has no roles: the machine is brought the same keys as the laptop has, which reach all of their buckets, unless
they are limited to this one. Nothing narrower can be had (fact: do-spaces-key-grants). So what decides what runs is
pinned (agent/pins.py), and the plan says what is left.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.objects.late import LateData, LateStage, LateStore
from orchestrator.core.credentials import require_sendable
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.machine import CLOUD_ROOT

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

    from orchestrator.adapters.datasets.push import BucketData
    from orchestrator.adapters.objects.s3 import S3Store
    from orchestrator.adapters.objects.stage import S3Stage
    from orchestrator.core.ports import Clock

_BUCKET = "KEDGE_SPACES_BUCKET"
_REGION = "KEDGE_SPACES_REGION"
_ENDPOINT = "KEDGE_SPACES_ENDPOINT"
_KEY = "SPACES_ACCESS_KEY_ID"
_SECRET = "SPACES_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name

_KEYS_FILE = "spaces.json"
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_CHECKSUMS = ("ChecksumAlgorithm", "ChecksumMode", "ChecksumSHA256", "ChecksumCRC32")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacesPlace:
    """Where the bucket is, and what opens it."""

    bucket: str
    region: str
    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


class Spaces:
    """The bucket behind the ports; nothing is contacted, and no SDK is loaded, before one of them is used.

    Args:
        place: the bucket.
        data_memory: a folder for what data sets were last seen to hold.
        clock: tells how young a file is.
    """

    def __init__(self, place: SpacesPlace, *, data_memory: Path, clock: Clock) -> None:
        self._place = place
        self._data_memory = data_memory
        self._clock = clock
        self.store = LateStore(self._open_store)
        self.stage = LateStage(self._open_stage)
        self.data = LateData(self._open_data)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What whoever takes over one machine can do with the keys that it was brought."""
        return (
            f"the machine gets this computer's Spaces keys, as every other one does: whoever takes it over reads and "
            f"replaces other runs' results in {self._place.bucket}, not their code, which is pinned. Limit the keys to "
            "that bucket; take another bucket, with keys of its own, for code that you don't trust",
        )

    def secret_files(self, seal: str) -> dict[str, str]:
        """Return the file with the keys that the store's URL names, for the machine's user alone.

        Args:
            seal: a secret that only this run's machines have (agent/seal.py).
        """
        keys = {"access_key": self._place.access_key, "secret_key": self._place.secret_key, "seal": seal}
        return {_KEYS_FILE: json.dumps(keys) + "\n"}

    def look(self) -> str:
        """See whether the keys open the bucket, and say where it is.

        Raises:
            KedgeError: they don't, or there is no such bucket.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - it loads the SDK

        place = self._place
        try:
            self._client.head_bucket(Bucket=place.bucket)
        except (BotoCoreError, ClientError) as err:
            raise KedgeError(
                f"the Spaces bucket {place.bucket} can't be opened",
                why=f"{place.endpoint}: {err}",
                fix=f"make it, or see to {_BUCKET}, {_REGION}, {_KEY} and {_SECRET}",
            ) from err
        return f"{place.bucket} at {place.endpoint}"

    @cached_property
    def _client(self) -> S3Client:
        return _make_client(self._place)

    def _open_store(self) -> S3Store:
        from orchestrator.adapters.objects.s3 import S3Store  # noqa: PLC0415 - it loads the SDK

        return S3Store(self._client, self._place.bucket, keys_file=f"{CLOUD_ROOT}/private/{_KEYS_FILE}")

    def _open_stage(self) -> S3Stage:
        from orchestrator.adapters.objects.stage import S3Stage  # noqa: PLC0415 - it loads the SDK

        return S3Stage(self._client, self._place.bucket)

    def _open_data(self) -> BucketData:
        from orchestrator.adapters.datasets.push import BucketData  # noqa: PLC0415 - it loads the SDK

        return BucketData(self._client, self._place.bucket, state=self._data_memory, clock=self._clock)


def open_spaces(environ: Mapping[str, str], *, data_memory: Path, clock: Clock) -> Spaces | None:
    """Take the bucket that the user's environment names; None where it names none.

    Raises:
        BadRequestError: it names only a part of what is needed.
    """
    place = read_place(environ)
    return Spaces(place, data_memory=data_memory, clock=clock) if place else None


def read_place(environ: Mapping[str, str]) -> SpacesPlace | None:
    """Read the bucket, its region or endpoint, and the keys; None where no bucket is named.

    Raises:
        BadRequestError: something else is missing, or a key holds what no key holds.
    """
    bucket = environ.get(_BUCKET, "")
    if not bucket:
        return None
    region, endpoint = environ.get(_REGION, ""), environ.get(_ENDPOINT, "")
    missing = [name for name in (_KEY, _SECRET) if not environ.get(name)]
    if not region and not endpoint:
        missing.append(_REGION)
    if missing:
        raise BadRequestError(
            f"the Spaces bucket {bucket} can't be used",
            why=f"{_BUCKET} is set, and {', '.join(missing)} is not",
            fix=f"set it, or unset {_BUCKET}: results then wait on the machine",
        )
    return SpacesPlace(
        bucket=bucket,
        region=region or "us-east-1",
        endpoint=(endpoint or f"https://{region}.digitaloceanspaces.com").rstrip("/"),
        access_key=require_sendable(environ[_KEY].strip(), _KEY),
        secret_key=require_sendable(environ[_SECRET].strip(), _SECRET),
    )


def _make_client(place: SpacesPlace) -> S3Client:
    import boto3  # noqa: PLC0415 - quick commands do without
    from botocore.config import Config  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    from orchestrator.adapters.aws_answers import check_answers  # noqa: PLC0415

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 3},
        # Others than Amazon refuse the checksums in trailers that the SDK sends by default since 1.36.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    core = Session()
    check_answers(core)
    session = boto3.Session(
        botocore_session=core, aws_access_key_id=place.access_key, aws_secret_access_key=place.secret_key
    )
    client: S3Client = session.client("s3", region_name=place.region, endpoint_url=place.endpoint, config=config)
    client.meta.events.register("before-parameter-build.s3", _drop_checksums)
    client.meta.events.register("before-sign.s3.DeleteObjects", _prefer_md5)
    return client


def _drop_checksums(params: dict[str, Any], **_: object) -> None:
    """Leave out what Spaces may not know; what is kept there is named by its SHA-256 and verified when it is read."""
    for name in _CHECKSUMS:
        params.pop(name, None)


def _prefer_md5(request: AWSRequest, **_: object) -> None:
    """Send, in place of the SDK's, the checksum that this call alone has always had to have."""
    for name in ("x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"):
        del request.headers[name]
    body: Any = request.body
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()
