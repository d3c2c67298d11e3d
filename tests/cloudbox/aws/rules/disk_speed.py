"""IOPS and throughput of gp3 volumes: EC2's limits, and that a root disk has what was asked for."""

from __future__ import annotations

import re

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_LEAST = {"Iops": 3_000, "Throughput": 125}
_MOST = {"Iops": 80_000, "Throughput": 2_000}
_OF_A_LAUNCH = re.compile(r"BlockDeviceMapping\.\d+\.Ebs\.")


def check(call: Call) -> None:
    """Refuse gp3 volumes whose IOPS and throughput don't go together, or not with their size (fact: gp3-limits).

    Raises:
        AwsError: They don't.
    """
    forms = {""} if call.action == "CreateVolume" else _forms(call)
    for form in forms:
        if call.params.get(f"{form}VolumeType") == "gp3":
            size = int(call.params.get(f"{form}VolumeSize" if form else "Size") or 8)
            _check_speed(size, *(_asked(call, form, name) or least for name, least in _LEAST.items()))


def keep(call: Call, answer: str) -> None:
    """Give the root disks of a launch the speed that was asked for: moto forgets it."""
    for instance_id in re.findall(r"<instanceId>(i-[0-9a-f]+)</instanceId>", answer):
        _, instance = moto_state.find_instance(instance_id)
        disks = dict(instance.get_block_device_mapping)
        for form in _forms(call):
            mapping = disks.get(call.params.get(form.replace("Ebs.", "DeviceName"), ""))
            if mapping is not None:
                volume = instance.ec2_backend.get_volume(mapping.volume_id)
                volume.iops, volume.throughput = (_asked(call, form, name) for name in _LEAST)


def _forms(call: Call) -> set[str]:
    return {found[0] for key in call.params if (found := _OF_A_LAUNCH.match(key))}


def _asked(call: Call, form: str, name: str) -> int:
    return int(call.params.get(f"{form}{name}") or 0)


def _check_speed(size: int, iops: int, mibps: int) -> None:
    for name, value in (("Iops", iops), ("Throughput", mibps)):
        if not _LEAST[name] <= value <= _MOST[name]:
            raise AwsError("InvalidParameterValue", f"{name} of {value} is outside of {_LEAST[name]} to {_MOST[name]}")
    if iops > max(_LEAST["Iops"], 500 * size):
        raise AwsError("InvalidParameterValue", f"Iops to volume size ratio of {iops / size:g} is too high")
    if mibps > iops / 4:
        raise AwsError("InvalidParameterValue", f"Throughput to iops ratio of {mibps / iops:g} is too high")
