"""Quotas: how many vCPUs an account may run, by region, market and family of types.

Codes: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html, and facts of several public
tools that agree (November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from orchestrator.core.errors import NoCapacityError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_service_quotas import ServiceQuotasClient

    from orchestrator.core.offer import Offer

_STANDARD = tuple("acdhimrtz")
_UNKNOWN = frozenset({"NoSuchResourceException", "AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})


class QuotaTooSmallError(NoCapacityError):
    """No fitting machine has room in its quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One limit on the number of running vCPUs."""

    code: str
    name: str


_QUOTAS = {
    ("standard", False): Quota(code="L-1216C47A", name="Running On-Demand Standard instances"),
    ("standard", True): Quota(code="L-34B43A08", name="All Standard Spot Instance Requests"),
    ("g", False): Quota(code="L-DB2E81BA", name="Running On-Demand G and VT instances"),
    ("g", True): Quota(code="L-3819A6DF", name="All G and VT Spot Instance Requests"),
    ("p", False): Quota(code="L-417A185B", name="Running On-Demand P instances"),
    ("p", True): Quota(code="L-7212CCBC", name="All P4, P3 and P2 Spot Instance Requests"),
    ("p5", False): Quota(code="L-417A185B", name="Running On-Demand P instances"),
    ("p5", True): Quota(code="L-C4BD4855", name="All P5 Spot Instance Requests"),
    ("p6", False): Quota(code="L-417A185B", name="Running On-Demand P instances"),
}

ALL_QUOTAS = tuple(dict.fromkeys(_QUOTAS.values()))
"""Every quota that one of kedge's machines may count against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """A quota's value in a region, and how much of it is in use."""

    quota: Quota
    limit_vcpus: int
    used_vcpus: int

    @property
    def free_vcpus(self) -> int:
        """How many more vCPUs may be launched."""
        return self.limit_vcpus - self.used_vcpus


def quota_of(instance_type: str, *, spot: bool) -> Quota | None:
    """Return the quota that a machine type counts against; None for families that kedge doesn't know."""
    letters = re.match(r"[a-z]+\d*", instance_type)
    return _QUOTAS.get((_family(letters[0]), spot)) if letters else None


def ask_limit(quotas: ServiceQuotasClient, quota: Quota) -> float | None:
    """Request a quota's value; None if AWS doesn't know it, or this user may not read it."""
    try:
        return quotas.get_service_quota(ServiceCode="ec2", QuotaCode=quota.code)["Quota"]["Value"]
    except ClientError as err:
        if err.response["Error"]["Code"] in _UNKNOWN:
            return None
        raise


def ask_running(ec2: EC2Client) -> list[tuple[str, bool]]:
    """List the running machines as (type, is a spot machine)."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    machines = (each for page in pages for group in page["Reservations"] for each in group["Instances"])
    return [(each["InstanceType"], each.get("InstanceLifecycle") == "spot") for each in machines]


def count_vcpus(running: Iterable[tuple[str, bool]], cpus: Mapping[str, int], quota: Quota) -> int:
    """Count the vCPUs that run against a quota."""
    return sum(cpus.get(kind, 0) for kind, spot in running if quota_of(kind, spot=spot) == quota)


def console_url(region: str, quota: Quota) -> str:
    """Return the console page for requesting a higher value."""
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{quota.code}"


def covered_by(quota: Quota | None, offer: Offer) -> Callable[[Offer], bool]:
    """Return a predicate: whether another offer counts against the same quota in the same region."""

    def covers(other: Offer) -> bool:
        same_pool = (other.region, other.spot) == (offer.region, offer.spot)
        return same_pool and quota_of(other.instance_type, spot=other.spot) == quota

    return covers


def no_headroom(headroom: Headroom, *, region: str, needed_vcpus: int) -> QuotaTooSmallError:
    """Make the error for a quota that is too small; `needed_vcpus` is what the run's smallest machines need."""
    quota = headroom.quota
    return QuotaTooSmallError(
        f"the quota of AWS in {region} is too small",
        why=f"{quota.code} ({quota.name}) is {headroom.limit_vcpus} vCPUs, of which {headroom.used_vcpus} run now;"
        f" this run needs {needed_vcpus}",
        fix=f"ask for {headroom.used_vcpus + needed_vcpus} or more at {console_url(region, quota)}, or try another"
        " --region",
    )


def _family(letters: str) -> str:
    if letters in ("p5", "p6"):
        return letters
    first = letters.rstrip("0123456789")
    if first in ("p", "inf", "trn", "dl", "hpc", "mac", "u"):
        return first
    if first.startswith(("g", "vt")):
        return "g"
    return "standard" if first.startswith(_STANDARD) else first
