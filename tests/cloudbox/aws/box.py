"""The box as tests use it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.cloudbox.aws.wire.credentials import OPERATOR_KEY, OPERATOR_SECRET

REGION = "us-east-1"
"""Where clients are when nothing else is said."""

_ROOT = Path(__file__).parents[3]
_UP_SECONDS = 120
_DOWN_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one thing has cost since it was made; `kind` is instance or volume, `until` None while it bills."""

    id: str
    kind: str
    region: str
    what: str
    usd_per_hour: Decimal
    since: float
    until: float | None
    usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """The meter: every bill, and the sum in dollars."""

    bills: tuple[Bill, ...]
    usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A call that the box has seen.

    `status` is None when it never got an answer from the service; `needs` are the permissions that it took, as
    permissions.evaluation.Need writes them, where IAM is enforced.
    """

    service: str
    action: str
    region: str
    at: float
    params: Mapping[str, Any]
    status: int | None
    fault: str | None
    needs: list[dict[str, Any]]


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables with which every AWS client talks to a box, and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": OPERATOR_KEY,
        "AWS_SECRET_ACCESS_KEY": OPERATOR_SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


class Box:
    """A box that runs, and its orders."""

    def __init__(self, endpoint: str, control: str, process: subprocess.Popen[bytes]) -> None:
        self.endpoint = endpoint
        self.process = process
        self._control = control
        self._clients: dict[tuple[str, str], Any] = {}
        self._session = boto3.session.Session(
            aws_access_key_id=OPERATOR_KEY, aws_secret_access_key=OPERATOR_SECRET, region_name=REGION
        )

    @property
    def env(self) -> dict[str, str]:
        """The variables for programs that are to use the box."""
        return environment(self.endpoint)

    def client(self, service: str, region: str = REGION, **session: Any) -> Any:
        """Return a boto3 client that calls once; `session` takes other credentials, as boto3's Session does."""
        if session:
            return self._make_client(boto3.session.Session(region_name=region, **session), service, region)
        if (service, region) not in self._clients:
            self._clients[service, region] = self._make_client(self._session, service, region)
        return self._clients[service, region]

    def reset(self) -> None:
        """Start from nothing."""
        self.order("POST", "reset")

    def fail_next(
        self,
        action: str,
        code: str,
        *,
        times: int | None = 1,
        status: int | None = None,
        message: str = "ordered by the test",
        **where: str,
    ) -> None:
        """Answer the next calls of an action with an error; `times` None: until reset.

        `where` narrows it down: service, region, zone, instance_type, market (spot, on-demand). `status` is AWS's own
        for the code when it isn't given. The action `*` means every call.
        """
        fault = {"action": action, "code": code, "times": times, "status": status, "message": message, "where": where}
        self.order("POST", "faults", fault)

    def drop_next(
        self, action: str, *, times: int | None = 1, before_effect: bool = False, seconds: float = 0, **where: str
    ) -> None:
        """Break the connection instead of answering, after some seconds: after the call was carried out, or before."""
        effect = "drop_before" if before_effect else "drop"
        fault = {"action": action, "effect": effect, "delay_seconds": seconds, "times": times, "where": where}
        self.order("POST", "faults", fault)

    def delay_next(self, action: str, seconds: float, *, times: int | None = 1, **where: str) -> None:
        """Let the next calls of an action take longer."""
        fault = {"action": action, "effect": "delay", "delay_seconds": seconds, "times": times, "where": where}
        self.order("POST", "faults", fault)

    def clear_faults(self) -> None:
        """Forget the faults that have not happened."""
        self.order("DELETE", "faults")

    def calls(self, service: str | None = None, action: str | None = None) -> list[Seen]:
        """Return the calls since the last reset, in order of arrival."""
        seen = [Seen(**entry) for entry in self.order("GET", "calls")]
        return [one for one in seen if service in (None, one.service) and action in (None, one.action)]

    def reset_calls(self) -> None:
        """Count calls from here."""
        self.order("DELETE", "calls")

    def meter(self) -> Metered:
        """Read the meter."""
        report = self.order("GET", "meter")
        return Metered(bills=tuple(_bill(entry) for entry in report["entries"]), usd=Decimal(report["usd"]))

    def billing(self) -> list[Bill]:
        """Return what still bills."""
        return [_bill(entry) for entry in self.order("GET", "billing")]

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines that run: instance_id, address, metadata_url, booted, has_network."""
        found: list[dict[str, Any]] = self.order("GET", "machines")
        return found

    def reclaim(self, instance_id: str, *, notice_seconds: float | None = 120) -> None:
        """Take a spot machine back, after a notice or (None) at once."""
        self.order("POST", "reclaim", {"instance_id": instance_id, "notice_seconds": notice_seconds})

    def set_states(self, *, pending_seconds: float, ending_seconds: float) -> None:
        """Set how long instances are `pending` and `shutting-down`, until reset."""
        self.order("POST", "states", {"pending_seconds": pending_seconds, "ending_seconds": ending_seconds})

    def fail_start(self, code: str, message: str = "ordered by the test") -> None:
        """Let the next instance be terminated before it has run, with this state reason: Client.InternalError, ..."""
        self.order("POST", "failed-start", {"code": code, "message": message})

    def finish_states(self) -> None:
        """Let every state between others be over now."""
        self.order("DELETE", "states")

    def break_gpu(self, fault: str = "matmul:0") -> None:
        """Let a GPU of the next machine that has any be faulty; gpus.py says which faults there are."""
        self.order("POST", "gpu-fault", {"fault": fault})

    def change_first_boot(self, **switches: float | bool) -> None:
        """Set how unkind the first boot of machines is, until reset; `first_boot.FirstBoot` names the switches."""
        self.order("POST", "first-boot", switches)

    def rebalance(self, instance_id: str) -> None:
        """Recommend that a spot machine's work moves."""
        self.order("POST", "rebalance", {"instance_id": instance_id})

    def set_spot_price(self, instance_type: str, zone: str, usd_per_hour: Decimal | str) -> None:
        """Set what a type costs in a zone."""
        order = {"instance_type": instance_type, "zone": zone, "usd_per_hour": str(usd_per_hour)}
        self.order("POST", "spot-price", order)

    def set_placement_score(self, zone: str, score: int) -> None:
        """Set how likely a spot machine is to be had in a zone, from 1 to 10."""
        self.order("POST", "placement-score", {"zone": zone, "score": score})

    def close_region(self, region: str, how: str = "scp") -> None:
        """Close a region to the account, until reset; closed_regions.py says how it may be."""
        self.order("POST", "closed-region", {"region": region, "how": how})

    def withdraw_image(self, part: str, *, region: str = REGION) -> None:
        """Have a region lack the images whose parameters hold a text, until reset."""
        self.order("POST", "withdrawn-image", {"region": region, "part": part})

    def set_quota(self, code: str, vcpus: float, *, region: str = REGION) -> None:
        """Set a quota by its code."""
        self.order("POST", "quota", {"region": region, "code": code, "vcpus": vcpus})

    def advance_schedules(self, seconds: float) -> None:
        """Let EventBridge's clock be this much ahead of the computer's, until reset."""
        self.order("POST", "schedules", {"ahead_seconds": seconds})

    def give_bucket_away(self, bucket: str) -> None:
        """Let a bucket be a stranger's, who lets everybody read and write it: somebody has taken over its name."""
        self.order("POST", "buckets", {"bucket": bucket, "is_trap": True})

    def enforce_iam(self, enforced: bool = True) -> None:
        """Check signatures and policies from now on; the box's own credentials may do everything."""
        self.order("POST", "iam", {"enforce": enforced})

    def _make_client(self, session: boto3.session.Session, service: str, region: str) -> Any:
        once = Config(retries={"total_max_attempts": 1})
        make: Any = session.client
        return make(service, region_name=region, endpoint_url=self.endpoint, config=once)

    def order(self, method: str, what: str, order: Mapping[str, Any] | None = None) -> Any:
        """Give an order.

        Raises:
            ValueError: The box can't do it; says why.
        """
        body = None if order is None else json.dumps(order).encode()
        request = urllib.request.Request(f"{self._control}/control/{what}", data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_UP_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as err:
            raise ValueError(json.load(err)["error"]) from err


@contextmanager
def start_box(folder: Path, machines: bool = True) -> Iterator[Box]:
    """Run a box; its own folder in `folder` goes with it, `cloudbox.log` stays."""
    command = [sys.executable, "-m", "tests.cloudbox", "--folder", str(folder)]
    with (folder / "cloudbox.log").open("ab") as log:
        process = subprocess.Popen(
            command if machines else [*command, "--no-machines"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        ready = _read_line(process, folder / "cloudbox.log")
        yield Box(ready["endpoint"], ready["control"], process)
    finally:
        _end(process)


def _read_line(process: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    assert process.stdout
    readable, _, _ = select.select([process.stdout], [], [], _UP_SECONDS)
    line = process.stdout.readline() if readable else b""
    if not line:
        raise RuntimeError(f"the box is not up after {_UP_SECONDS} s or has ended:\n{log.read_text()[-4000:]}")
    ready: dict[str, str] = json.loads(line)
    return ready


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.close()
    try:
        process.wait(_DOWN_SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _bill(entry: Mapping[str, Any]) -> Bill:
    return Bill(**{**entry, "usd_per_hour": Decimal(entry["usd_per_hour"]), "usd": Decimal(entry["usd"])})
