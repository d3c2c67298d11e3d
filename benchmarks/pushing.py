"""The part of kedge that `bench_data.py` times: one process that makes a data set in a bucket equal to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.store.s3 import S3Bucket
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from orchestrator.adapters.sync.data.push import DataSets

NAME = "pictures"


def main() -> None:
    """Send a folder; the arguments are its path, the bucket, the prefix, and where to remember what was sent."""
    source, bucket, prefix, memory = sys.argv[1:]
    client = AwsSession().client("s3")
    store = S3Bucket(lambda: S3Connection(client, S3Settings(bucket=bucket)), prefix)
    data = DataSets(store, memory=Path(memory), clock=SystemClock())
    data.put(source, lambda _done, _total: None, name=NAME)


if __name__ == "__main__":
    main()
