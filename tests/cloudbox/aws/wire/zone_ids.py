"""Zones by their ids, which moto's requests don't know.

fact: aws-zone-id-member
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from urllib.parse import urlencode

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call, Environ

_NAMES = {
    "RunInstances": ("Placement.AvailabilityZone", "Placement.AvailabilityZoneId"),
    "CreateVolume": ("AvailabilityZone", "AvailabilityZoneId"),
}


def zones(region: str) -> dict[str, str]:
    """Return a region's zone ids by name."""
    return {zone.name: zone.zone_id for zone in moto_state.ec2(region).describe_availability_zones()}


def by_name(call: Call, environ: Environ) -> Call:
    """Return the call with its zone by name, in the request that moto reads too.

    Raises:
        AwsError: there is no such zone, or it is named twice.
    """
    name_key, id_key = _NAMES.get(call.action, ("", ""))
    zone_id, name = call.params.get(id_key), call.params.get(name_key)
    known = zones(call.region) if zone_id or name else {}
    if name and name not in known:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{name}]")
    if not zone_id:
        return call
    if name:
        raise AwsError("InvalidParameterCombination", f"The parameters {name_key} and {id_key} can't be used together")
    names = [each for each, its_id in known.items() if its_id == zone_id]
    if not names:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone-id: [{zone_id}]")
    params = {key: value for key, value in call.params.items() if key != id_key} | {name_key: names[0]}
    body = urlencode({"Action": call.action, "Version": "2016-11-15", **params}).encode()
    environ |= {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    return replace(call, params=params)
