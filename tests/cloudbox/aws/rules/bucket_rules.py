"""What S3 asks of a request beyond what moto does: whose the bucket is, and where.

Everybody is the box's account but the stranger, who signs with a key of their own. A bucket belongs to whoever made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket, s3_backends

from tests.cloudbox.aws.wire.moto_state import ACCOUNT

STRANGER = "999988887777"
"""Another account."""

STRANGER_KEY = "AKIASTRANGER00000000"
"""Its access key; the secret doesn't matter, as long as IAM isn't enforced."""

_SIGNED = re.compile(r"Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/s3/")
_PARTITION = "aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What S3 answers instead of the object; `region` goes into a header."""

    status: int
    code: str
    message: str
    region: str = ""


@dataclass(slots=True)
class BucketRules:
    """Who made which bucket, and what follows from it."""

    _strangers: set[str] = field(default_factory=set)
    _traps: set[str] = field(default_factory=set)

    def reset(self) -> None:
        """Forget who made what."""
        self._strangers.clear()
        self._traps.clear()

    def give_away(self, bucket: str, *, is_trap: bool = False) -> None:
        """Let a bucket be the stranger's: deleted by its owner, and made by somebody else.

        Args:
            bucket: its name.
            is_trap: the stranger lets everybody read and write it.
        """
        self._strangers.add(bucket)
        if is_trap:
            self._traps.add(bucket)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> Refused | None:
        """Tell what is wrong with a request whose path begins with the bucket; `headers` have lower-case names."""
        place, _, query = path.strip("/").partition("?")
        name, _, key = place.partition("/")
        signed = _SIGNED.search(headers.get("authorization", ""))
        signer = STRANGER if signed and signed["key"] == STRANGER_KEY else ACCOUNT
        bucket = s3_backends[ACCOUNT][_PARTITION].buckets.get(name)
        if bucket is None:
            # Whoever makes it owns it; moto refuses names that are taken.
            if method == "PUT" and not key and signer == STRANGER:
                self.give_away(name)
            return None
        # fact: s3-region-told
        if signed and signed["region"] != bucket.region_name:
            return _redirect(bucket)
        owner = STRANGER if name in self._strangers else ACCOUNT
        # fact: s3-expected-owner
        if headers.get("x-amz-expected-bucket-owner", owner) != owner:
            return _deny(bucket)
        if name in self._traps:
            return None
        if signed is None:
            is_presigned = "X-Amz-Signature=" in query or "Signature=" in query
            return None if is_presigned or _is_public(bucket, method, key) else _deny(bucket)
        # fact: s3-public-unsigned
        return _deny(bucket) if signer != owner else None


def _is_public(bucket: FakeBucket, method: str, key: str) -> bool:
    action = "s3:ListBucket" if not key else "s3:GetObject"
    resource = f"arn:aws:s3:::{bucket.name}/{key}".rstrip("/")
    return method in ("GET", "HEAD") and bucket.get_permission(action, resource) == PermissionResult.PERMITTED


def _deny(bucket: FakeBucket) -> Refused:
    return Refused(status=403, code="AccessDenied", message="Access Denied", region=bucket.region_name)


def _redirect(bucket: FakeBucket) -> Refused:
    where = bucket.region_name
    return Refused(status=301, code="PermanentRedirect", message=f"use the endpoint of {where}", region=where)
