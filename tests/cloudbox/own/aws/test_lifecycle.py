"""Instances of the box are machines that boot, and end the way EC2's do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import SPOT, code_of, instances, launch, refusal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

POWER_OFF = "#cloud-config\nruncmd:\n- [systemctl, poweroff]\n"


def answers_ssh(address: str) -> bool:
    """Tell whether a machine's sshd says its name."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def address(box: Box) -> str:
    """Return the address of the only instance."""
    (instance,) = instances(box)
    return str(instance["PublicIpAddress"])


def state(box: Box) -> str:
    """Return the state of the only instance."""
    return str(instances(box)[0]["State"]["Name"])


def metadata(box: Box, path: str) -> str | None:
    """Ask the metadata service of the only machine, as IMDSv2 wants it; None where it answers 404."""
    (machine,) = box.machines()
    url = machine["metadata_url"]
    ask = urllib.request.Request(
        f"{url}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    with urllib.request.urlopen(ask, timeout=60) as answer:
        token = answer.read().decode()
    request = urllib.request.Request(f"{url}/latest/{path}", headers={"X-aws-ec2-metadata-token": token})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as err:
        if err.code != HTTPStatus.NOT_FOUND:
            raise
        return None


def test_launched_machine_answers_ssh_and_terminated_one_does_not(box: Box) -> None:
    """A machine is there seconds after its launch, and gone with its termination."""
    instance = launch(box)
    where = address(box)
    started = time.monotonic()
    wait_until(lambda: answers_ssh(where), seconds=240)
    print(f"SSH after {time.monotonic() - started:.1f} s")
    box.client("ec2").terminate_instances(InstanceIds=[instance])

    wait_until(lambda: not answers_ssh(where))
    assert box.machines() == []
    wait_until(lambda: box.billing() == [])


@pytest.mark.parametrize(("behavior", "after", "billing"), [("terminate", "terminated", 0), ("stop", "stopped", 1)])
def test_power_off_ends_as_the_launch_asked(box: Box, behavior: str, after: str, billing: int) -> None:
    """A machine that powers itself off is terminated, or stopped with a disk that bills on."""
    launch(box, UserData=POWER_OFF, InstanceInitiatedShutdownBehavior=behavior)

    wait_until(lambda: state(box) == after, seconds=240)
    assert instances(box)[0]["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert [bill.kind for bill in box.billing()] == ["volume"] * billing


def test_reclaim_is_announced_on_the_machine(box: Box) -> None:
    """The notice and the recommendation are in the metadata service; then the plug is pulled."""
    instance = launch(box, **SPOT)
    where = address(box)
    assert metadata(box, "meta-data/spot/instance-action") is None
    box.rebalance(instance)
    box.reclaim(instance, notice_seconds=15)

    assert "noticeTime" in str(metadata(box, "meta-data/events/recommendations/rebalance"))
    assert "terminate" in str(metadata(box, "meta-data/spot/instance-action"))
    wait_until(lambda: state(box) == "terminated")
    assert instances(box)[0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    wait_until(lambda: not answers_ssh(where))


def test_machine_has_the_credentials_of_its_role(box: Box) -> None:
    """What the metadata service gives works, and is held to the role's policy."""
    _make_profile(box)
    launch(box, IamInstanceProfile={"Name": "run"})
    assert metadata(box, "meta-data/iam/security-credentials/") == "run"
    found = _parse(metadata(box, "meta-data/iam/security-credentials/run"))
    keys = {
        "aws_access_key_id": found["AccessKeyId"],
        "aws_secret_access_key": found["SecretAccessKey"],
        "aws_session_token": found["Token"],
    }
    box.enforce_iam()

    assert box.client("ec2", **keys).describe_instances()["Reservations"]
    assert code_of(refusal(box.client("s3", **keys).list_buckets)) == "AccessDenied"


def test_attached_volume_is_a_disk_of_the_machine(box: Box) -> None:
    """A volume that is attached appears by its serial; its data is kept until it is deleted."""
    wait = "until ls /dev/disk/by-id/*_vol*; do sleep 0.1; done; systemctl poweroff"
    user_data = "#cloud-config\n" + json.dumps({"runcmd": [["sh", "-c", wait]]})
    instance = launch(box, UserData=user_data, InstanceInitiatedShutdownBehavior="terminate")
    ec2, zone = box.client("ec2"), instances(box)[0]["Placement"]["AvailabilityZone"]
    volume = ec2.create_volume(AvailabilityZone=zone, Size=1, VolumeType="gp3")["VolumeId"]
    wait_until(lambda: state(box) == "running")
    ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")

    wait_until(lambda: state(box) == "terminated", seconds=240)
    assert [bill.id for bill in box.billing()] == [volume]


def test_killed_tests_leave_no_machine(box: Box, tmp_path: Path) -> None:
    """SIGKILL of the tests ends the box and its machines, and takes their folders away."""
    script = (
        "import time, pathlib\n"
        "from tests.cloudbox.aws.box import start_box\n"
        "from tests.cloudbox.aws.launches import launch\n"
        f"with start_box(pathlib.Path({str(tmp_path)!r})) as box:\n"
        "    print(launch(box), box.machines()[0]['address'], flush=True)\n"
        "    time.sleep(60)\n"
    )
    root = Path(__file__).parents[4]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        instance, where = tests.stdout.readline().split()
        wait_until(lambda: answers_ssh(where), seconds=240)
        tests.kill()

    wait_until(lambda: [path.name for path in tmp_path.iterdir()] == ["cloudbox.log"])
    assert not answers_ssh(where)
    # A keeper ends after it has deleted its folder.
    wait_until(
        lambda: not [one for one in psutil.process_iter(["cmdline"]) if instance in " ".join(one.info["cmdline"] or [])]
    )


def _make_profile(box: Box) -> None:
    iam = box.client("iam")
    iam.create_role(RoleName="run", AssumeRolePolicyDocument=_document("sts:AssumeRole", trust=True))
    iam.put_role_policy(RoleName="run", PolicyName="own", PolicyDocument=_document("ec2:DescribeInstances"))
    iam.create_instance_profile(InstanceProfileName="run")
    iam.add_role_to_instance_profile(InstanceProfileName="run", RoleName="run")


def _document(action: str, *, trust: bool = False) -> str:
    whom: dict[str, Any] = {"Principal": {"Service": "ec2.amazonaws.com"}} if trust else {"Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **whom}]})


def _parse(text: str | None) -> dict[str, str]:
    parsed: dict[str, str] = json.loads(text or "{}")
    return parsed
