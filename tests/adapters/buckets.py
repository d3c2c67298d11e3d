"""The test bucket as a laptop reaches it: with the real SDK, through the gate that records requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from orchestrator.adapters.store.s3 import S3Bucket
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from tests.agent.aws import REGION, Aws

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def laptop_client(aws: Aws) -> S3Client:
    """Make a client that doesn't retry."""
    return boto3.client(
        "s3",
        endpoint_url=aws.gate.url,
        region_name=REGION,
        aws_access_key_id="laptop",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, max_pool_connections=20),
    )


def bucket_of(
    client: S3Client, name: str, prefix: str = "runs", *, owner: str = "", is_shared: bool = False
) -> S3Bucket:
    """Return a bucket at AWS that this client opens."""
    settings = S3Settings(
        bucket=name,
        region=client.meta.region_name,
        endpoint=client.meta.endpoint_url,
        owner=owner,
        is_shared=is_shared,
        if_missing="make it with `kedge bootstrap --provider aws`",
    )
    return S3Bucket(lambda: S3Connection(client, settings), prefix)


def asked(aws: Aws, *, since: int = 0) -> list[str]:
    """List the requests to the bucket: the method, and the key or the query."""
    return [f"{method} {path.removeprefix(f'/{aws.bucket}')}" for method, path, _ in aws.gate.asked[since:]]
