"""What a run on AWS in the box has uploaded, and what it has cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal

from botocore.exceptions import ClientError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from tests.cloudbox.aws.box import Bill, Box
from tests.cloudbox.aws.launches import instances
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

BUCKET = "kedge-test"


def wait_until_shipped(box: Box, run: str, *, after: int = 0, bucket: str = BUCKET) -> int:
    """Wait until the bucket has a checkpoint of a later step, and return its newest step."""
    wait_until(lambda: shipped_step(box, run, bucket) > after, seconds=120, pause=0.3)
    return shipped_step(box, run, bucket)


def _is_server_error(err: BaseException) -> bool:
    """Moto answers 500 if an object is replaced while it is read."""
    return isinstance(err, ClientError) and err.response["ResponseMetadata"]["HTTPStatusCode"] >= 500


@retry(retry=retry_if_exception(_is_server_error), stop=stop_after_attempt(5), wait=wait_fixed(0.2), reraise=True)
def _list_shipped(box: Box, run: str, bucket: str) -> list[str]:
    """List the head's files in the bucket."""
    store = box.client("s3")
    try:
        listed = store.get_object(Bucket=bucket, Key=f"runs/{run}/manifest.json")
    except store.exceptions.NoSuchKey:
        return []
    return [file["path"] for file in json.load(listed["Body"])["files"]]


def shipped_step(box: Box, run: str, bucket: str = BUCKET) -> int:
    """Return the newest step whose checkpoint is in the bucket, 0 for none."""
    paths = _list_shipped(box, run, bucket)
    return max((int(path[-12:-4]) for path in paths if path.startswith("checkpoints/")), default=0)


def is_shipped(box: Box, run: str, checkpoint: str) -> bool:
    """Tell whether the bucket has a checkpoint of the head."""
    return f"checkpoints/{checkpoint}" in _list_shipped(box, run, BUCKET)


def instance_of(box: Box, laptop: Laptop, run: str, rank: int) -> str:
    """Return the instance that has a rank now."""
    machines = laptop.json("status", run, "--ledger")[0]["machines"]
    (name,) = (each["id"] for each in machines if each["rank"] == rank)
    running = [each for each in instances(box) if each["State"]["Name"] == "running"]
    (found,) = (each for each in running if name in {tag["Value"] for tag in each["Tags"]})
    return str(found["InstanceId"])


def steps(laptop: Laptop, run: str, folder: str) -> list[int]:
    """Fetch the results and return the steps that were done, in order."""
    laptop.kedge("fetch", run, "--to", folder)
    lines = (laptop.home / folder / "output" / "results" / "steps.log").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {run}
    return [int(line.split()[0]) for line in lines]


def assert_counted(box: Box, laptop: Laptop, *, unseen: Callable[[Box], Decimal] = lambda _box: Decimal()) -> None:
    """Check `cost` against the meter, within 1 % or two seconds for each machine: AWS's times are whole seconds.

    Args:
        box: AWS.
        laptop: where the run was launched.
        unseen: what a reclaimed machine would have cost until kedge noticed its end; `cost` may include it.
    """
    metered = box.meter()
    counted = sum(Decimal(run["spent_usd"]) for run in laptop.json("cost"))
    slack = max(metered.usd / 100, 2 * sum((bill.usd_per_hour for bill in metered.bills), Decimal()) / 3600)
    assert -slack <= counted - metered.usd <= slack + unseen(box), (counted, metered.usd)


def unseen_until_the_next(box: Box) -> Decimal:
    """Return what the first machine would have cost from its end until the next one was created."""
    _first, second = _two_machines(box)
    return _usd_unseen(box, second.since)


def unseen_until_now(box: Box) -> Decimal:
    """Return what the first machine would have cost from its end until now."""
    return _usd_unseen(box, time.time())


def _usd_unseen(box: Box, seen: float) -> Decimal:
    first, _second = _two_machines(box)
    assert first.until is not None
    return Decimal(seen - first.until) * first.usd_per_hour / 3600


def _two_machines(box: Box) -> tuple[Bill, Bill]:
    first, second = sorted((bill for bill in box.meter().bills if bill.kind == "instance"), key=lambda bill: bill.since)
    return first, second
