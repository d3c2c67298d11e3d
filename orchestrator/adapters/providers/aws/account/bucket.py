"""The account's bucket: its default name, its owner, its contents, and its deletion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import ClientError

from orchestrator.adapters.aws_sdk import code_of
from orchestrator.adapters.store.s3_sdk import name_owner
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession

# A HEAD has no body to say more in.
_ABSENT = ("NoSuchBucket", "404")
_FORBIDDEN = "403"


def own_s3(session: AwsSession, account_id: str, region: str | None = None) -> S3Client:
    """Return a client that names the bucket's owner in every request, so that S3 refuses for a stranger's bucket.

    Args:
        session: the account's session.
        account_id: the owner's account.
        region: of the bucket; defaults to the session's.
    """
    return name_owner(session.client("s3", region), account_id)


def default_bucket(session: AwsSession) -> str:
    """Return the bucket's default name, which contains the account: bucket names are unique in the whole world.

    Raises:
        KedgeError: there are no credentials, or AWS doesn't accept them.
    """
    return f"kedge-{session.account_id()}-{session.region}"


def look_at_bucket(client: S3Client, bucket: str) -> Literal["absent", "ours", "forbidden"]:
    """Tell whether a bucket with this name exists, and whether the account may read it.

    Args:
        client: names the owner (`own_s3`).
        bucket: the name.

    Raises:
        ClientError: S3 fails otherwise.
    """
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as err:
        if code_of(err) in _ABSENT:
            return "absent"
        if code_of(err) == _FORBIDDEN:
            return "forbidden"
        raise
    return "ours"


def bucket_versions(client: S3Client, bucket: str) -> Iterator[tuple[ObjectIdentifierTypeDef, int]]:
    """Yield every object and its bytes, including older versions if the bucket is versioned."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for version in page.get("Versions", ()):
            yield {"Key": version["Key"], "VersionId": version["VersionId"]}, version["Size"]
        for marker in page.get("DeleteMarkers", ()):
            yield {"Key": marker["Key"], "VersionId": marker["VersionId"]}, 0


def delete_bucket(client: S3Client, bucket: str, *, with_data: bool) -> None:
    """Delete a bucket; a bucket that isn't empty is deleted only `with_data`.

    Raises:
        KedgeError: objects can't be deleted.
        ClientError: S3 refuses.
    """
    if with_data:
        objects = [name for name, _ in bucket_versions(client, bucket)]
        for start in range(0, len(objects), 1000):
            answer = client.delete_objects(
                Bucket=bucket, Delete={"Objects": objects[start : start + 1000], "Quiet": True}
            )
            _refuse_leftovers(bucket, [error.get("Key", "") for error in answer.get("Errors", ())])
    client.delete_bucket(Bucket=bucket)


def _refuse_leftovers(bucket: str, keys: list[str]) -> None:
    if keys:
        raise KedgeError(
            f"the bucket {bucket} can't be emptied",
            why=f"S3 didn't delete {len(keys)} objects, such as {keys[0]}",
            fix="see whether a lock or a policy holds them, then run the same command again",
        )
