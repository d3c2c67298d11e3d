"""Service quotas of EC2: how many virtual CPUs an account may run, by family and market."""

from __future__ import annotations

import threading
from typing import Any

from werkzeug.wrappers import Response

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError, json_answer
from tests.cloudbox.aws.wire.call import Call

_USUAL = 512.0
"""Enough for tests that aren't about quotas; a new account has 0 of most."""

_NAMES = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
    "L-417A185B": "Running On-Demand P instances",
    "L-7212CCBC": "All P4, P3 and P2 Spot Instance Requests",
}
_CODES = {
    ("standard", "on-demand"): "L-1216C47A",
    ("standard", "spot"): "L-34B43A08",
    ("g", "on-demand"): "L-DB2E81BA",
    ("g", "spot"): "L-3819A6DF",
    ("p", "on-demand"): "L-417A185B",
    ("p", "spot"): "L-7212CCBC",
}


class QuotaBook:
    """The quotas in every region."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[tuple[str, str], float] = {}

    def set(self, region: str, code: str, vcpus: float) -> None:
        """Change a quota.

        Raises:
            LookupError: There is no quota with this code.
        """
        if code not in _NAMES:
            raise LookupError(f"no quota {code}; there are {', '.join(_NAMES)}")
        with self._lock:
            self._set[region, code] = vcpus

    def reset(self) -> None:
        """Go back to the usual quotas."""
        with self._lock:
            self._set.clear()

    def check(self, *, region: str, instance_type: str, market: str, count: int) -> None:
        """Refuse machines over the quota.

        Raises:
            AwsError: VcpuLimitExceeded, or MaxSpotInstanceCountExceeded for spot.
        """
        code = _CODES.get((_family(instance_type), market))
        if code is None:
            return
        limit = self._value(region, code)
        if _running_vcpus(region, code) + count * moto_state.vcpus(instance_type) <= limit:
            return
        if market == "spot":
            raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise AwsError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows for the "
            "instance bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )

    def get(self, call: Call) -> Response:
        """Answer GetServiceQuota.

        Raises:
            AwsError: NoSuchResourceException.
        """
        code = call.params.get("QuotaCode", "")
        if call.params.get("ServiceCode") != "ec2" or code not in _NAMES:
            raise AwsError("NoSuchResourceException", "The request failed because the specified resource doesn't exist")
        return json_answer({"Quota": self._describe(call.region, code)})

    def list(self, call: Call) -> Response:
        """Answer ListServiceQuotas."""
        return json_answer({"Quotas": [self._describe(call.region, code) for code in _NAMES]})

    def _value(self, region: str, code: str) -> float:
        with self._lock:
            return self._set.get((region, code), _USUAL)

    def _describe(self, region: str, code: str) -> dict[str, Any]:
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": f"arn:aws:servicequotas:{region}:{moto_state.ACCOUNT}:ec2/{code}",
            "QuotaCode": code,
            "QuotaName": _NAMES[code],
            "Value": self._value(region, code),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }


def _family(instance_type: str) -> str:
    if instance_type.startswith(("vt", "g")):
        return "g"
    return "standard" if instance_type[0] in "acdhimrtz" else instance_type[0]


def _running_vcpus(region: str, code: str) -> int:
    return sum(
        moto_state.vcpus(instance.instance_type)
        for instance in moto_state.ec2(region).all_instances()
        if instance.state in moto_state.RUNNING
        and _CODES.get((_family(instance.instance_type), moto_state.market(instance))) == code
    )
