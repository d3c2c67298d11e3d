"""What `bench_data.py` times of kedge: one process that brings a data set in a bucket to the state of a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.datasets.push import BucketData
from orchestrator.adapters.providers.aws.session import AwsSession

NAME = "pictures"


def main() -> None:
    """Send a folder: its path, the bucket, the prefix, and where to remember what was sent."""
    source, bucket, prefix, memory = sys.argv[1:]
    client = AwsSession().client("s3")
    data = BucketData(client, bucket, state=Path(memory), clock=SystemClock(), prefix=prefix)
    data.put(source, lambda _done, _total: None, name=NAME)


if __name__ == "__main__":
    main()
