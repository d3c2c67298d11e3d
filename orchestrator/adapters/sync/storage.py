"""Bundles the three uses of the object store: results of runs, starts of machines, and the laptop's data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from orchestrator.adapters.store.results import Results
from orchestrator.adapters.store.s3 import S3Bucket, connect_with_keys
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from orchestrator.adapters.store.stage import Stage
from orchestrator.adapters.sync.data.push import DataSets
from orchestrator.core.ports import Clock

_RUNS = "runs"
_DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """One bucket, as the implementation of three ports.

    Attributes:
        caveats: what the bucket exposes to a run's machine beyond that run.
        require_keys: raises BadRequestError if the keys that open the bucket aren't set.
    """

    results: Results
    stage: Stage
    data: DataSets
    caveats: tuple[str, ...] = ()
    require_keys: Callable[[], None] = lambda: None


def open_storage(connect: Callable[[], S3Connection], *, data_memory: Path, clock: Clock) -> Storage:
    """Implement the ports with a bucket; it is opened once, at its first use.

    Args:
        connect: opens the bucket.
        data_memory: a folder for the last known states of data sets.
        clock: tells the age of files.
    """
    once = cache(connect)
    runs = S3Bucket(once, _RUNS)
    data = DataSets(S3Bucket(once, _DATA), memory=data_memory, clock=clock)
    return Storage(results=Results(runs), stage=Stage(runs), data=data)


def open_keyed_storage(bucket: S3Settings | None, *, data_memory: Path, clock: Clock) -> Storage | None:
    """Implement the ports with a bucket that is opened with keys; None without a bucket."""
    if bucket is None:
        return None
    storage = open_storage(partial(connect_with_keys, bucket), data_memory=data_memory, clock=clock)
    return replace(storage, caveats=bucket.caveats, require_keys=bucket.require_keys)
