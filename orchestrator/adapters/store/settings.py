"""The settings of a bucket at any S3-compatible store, and the environment variables for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.values.credentials import require_sendable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_OF_AMAZON = ".amazonaws.com"
_ANY_REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """A bucket, and how to open it.

    Attributes:
        bucket: its name.
        region: empty if the endpoint has none.
        endpoint: empty for Amazon's own.
        kind: the product's name in messages: "Spaces".
        access_key, secret_key: empty if the SDK finds the credentials by itself.
        keys_file: the path of these keys on machines; empty if machines have a role.
        owner: the AWS account that must own the bucket; machines name it in every request.
        is_shared: machines share a role, so other runs' machines can write to this run's prefix.
        has_checksums: it stores SHA-256 checksums. Stores other than Amazon's refuse or drop them.
        if_missing: what the user can do if there is no such bucket.
        if_refused: what the user can do if the keys aren't accepted.
        named_by: the variable that names the bucket; empty if none does.
        lacking: the variables with its keys that aren't set.
    """

    bucket: str
    region: str = ""
    endpoint: str = ""
    kind: str = "S3"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    keys_file: str = ""
    owner: str = ""
    is_shared: bool = False
    has_checksums: bool = True
    if_missing: str = ""
    if_refused: str = ""
    named_by: str = ""
    lacking: tuple[str, ...] = ()

    def require_keys(self) -> None:
        """Refuse to open the bucket without its keys. Machines are listed and ended without them.

        Raises:
            BadRequestError: a variable isn't set.
        """
        if self.lacking:
            raise BadRequestError(
                f"the {self.kind} bucket {self.bucket} can't be used",
                why=f"{self.named_by} is set, and {', '.join(self.lacking)} is not",
                fix=f"set it, or unset {self.named_by}: results then wait on the machine",
            )

    def url(self, prefix: str) -> str:
        """Return the URL that machines get; it holds no key.

        Args:
            prefix: the common prefix of the keys, without a slash at its end.
        """
        where = {"region": self.region}
        if self.endpoint and not (urlsplit(self.endpoint).hostname or "").endswith(_OF_AMAZON):
            where["endpoint"] = self.endpoint
        if self.keys_file:
            where["keys"] = self.keys_file
        if self.owner:
            where["owner"] = self.owner
        if self.is_shared:
            where["shared"] = "1"
        return f"s3://{self.bucket}/{quote(prefix)}?{urlencode(where, safe=':/')}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What an attacker on one machine can do with the keys that were sent to it."""
        if not self.keys_file:
            return ()
        return (
            f"the machine gets this computer's {self.kind} keys, as every other one does: whoever takes it over reads "
            f"and replaces other runs' results in {self.bucket}, not their code, which is pinned. Limit the keys to "
            "that bucket; take another bucket, with keys of its own, for code that you don't trust",
        )

    def secret_files(self, seal: str) -> dict[str, str]:
        """Return the file with the bucket's keys, readable for the machine's user alone.

        Args:
            seal: a secret that only this run's machines have (agent/s3/seal.py).

        Raises:
            BadRequestError: this computer hasn't the keys either.
        """
        self.require_keys()
        keys = {"access_key": self.access_key, "secret_key": self.secret_key, "seal": seal}
        return {PurePosixPath(self.keys_file).name: json.dumps(keys) + "\n"}


class S3Connection(NamedTuple):
    """A bucket, and the SDK's client for it."""

    client: S3Client
    settings: S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVariables:
    """The environment variables for one kind of bucket with keys.

    Attributes:
        kind: as `S3Settings.kind`.
        keys_file: the name of the file with the keys, on machines.
        endpoint_of_region: the default endpoint; empty if the variable is required.
    """

    kind: str
    bucket: str
    region: str
    endpoint: str
    access_key: str
    secret_key: str
    keys_file: str
    endpoint_of_region: str = ""


KEDGE_STORE = StoreVariables(
    kind="S3",
    bucket="KEDGE_STORE_BUCKET",
    region="KEDGE_STORE_REGION",
    endpoint="KEDGE_STORE_ENDPOINT",
    access_key="KEDGE_STORE_ACCESS_KEY_ID",
    secret_key="KEDGE_STORE_SECRET_ACCESS_KEY",  # noqa: S106 - a variable's name
    keys_file="store.json",
)
"""For clouds without buckets: any S3-compatible store."""


def read_settings(environ: Mapping[str, str], names: StoreVariables) -> S3Settings | None:
    """Read the bucket, its region or endpoint, and the keys; None if no bucket is named.

    Missing keys are noted in the settings, and refused when the bucket is opened: machines can be ended without them.

    Raises:
        BadRequestError: a key has invalid characters.
    """
    bucket = environ.get(names.bucket, "")
    if not bucket:
        return None
    region, endpoint = environ.get(names.region, ""), environ.get(names.endpoint, "")
    missing = [name for name in (names.access_key, names.secret_key) if not environ.get(name)]
    if not endpoint and not (region and names.endpoint_of_region):
        missing.append(names.region if names.endpoint_of_region else names.endpoint)
    variables = f"{names.bucket}, {names.region}, {names.access_key} and {names.secret_key}"
    return S3Settings(
        bucket=bucket,
        region=region or _ANY_REGION,
        endpoint=(endpoint or names.endpoint_of_region.format(region=region)).rstrip("/"),
        kind=names.kind,
        access_key=require_sendable(environ.get(names.access_key, "").strip(), names.access_key),
        secret_key=require_sendable(environ.get(names.secret_key, "").strip(), names.secret_key),
        keys_file=f"{CLOUD_ROOT}/private/{names.keys_file}",
        has_checksums=False,
        if_missing=f"make it, or see to {variables}",
        if_refused=f"see to {variables}",
        named_by=names.bucket,
        lacking=tuple(missing),
    )
