"""User-data at work: machines of the box boot with it, fetch the agent from S3 and report that they are ready."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.adapters.cloud.boot.cloud_config import BootSpec, BootVolume, Origin
from orchestrator.adapters.cloud.boot.job_user import END_COMMAND
from orchestrator.adapters.cloud.boot.user_data import render_user_data
from orchestrator.adapters.providers.aws.traits import BOOT
from orchestrator.core.protocol.readiness import Readiness, parse_ready
from orchestrator.core.protocol.wire import BootOrder, MachineConfig
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.machines.lab import Keys
from tests.support.waiting import wait_until

DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
DEBIAN = "/aws/service/debian/release/12/latest/amd64"
BUCKET = "kedge"
RUN = "digits-7f3a"
LIFETIME = 900
TRUST = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}


class Account:
    """What a launch has created before it requests the machine: the agent in the bucket, a role, keys."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box = box
        self.keys = Keys(folder)
        self.agent = agent_archive()
        self.ec2 = box.client("ec2")
        s3, iam = box.client("s3"), box.client("iam")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN}/agent/{self.sha256}.tar.gz", Body=self.agent)
        trust = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
        iam.create_role(RoleName="run", AssumeRolePolicyDocument=trust)
        iam.create_instance_profile(InstanceProfileName="run")
        iam.add_role_to_instance_profile(InstanceProfileName="run", RoleName="run")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.agent).hexdigest()

    def spec(self, *volumes: BootVolume) -> BootSpec:
        machine = MachineConfig(
            machine=f"{RUN}-1",
            run=RUN,
            provider="aws",
            root="/opt/kedge",
            created=0,
            deadline_at=0,
            usd_per_hour="0.526",
            store_url=f"s3://{BUCKET}/runs?region={REGION}&endpoint={self.box.endpoint}",
            end_command=END_COMMAND,
        )
        return BootSpec(
            machine=machine,
            lifetime_seconds=LIFETIME,
            boot=BootOrder(),
            authorized_key=self.keys.public("user"),
            host_private_key=(self.keys.folder / "host").read_text(),
            host_public_key=self.keys.public("host"),
            agent_sha256=self.sha256,
            volumes=volumes,
        )

    def launch(self, spec: BootSpec, image: str = DEEP_LEARNING) -> str:
        found = self.box.client("ssm").get_parameter(Name=image)["Parameter"]["Value"]
        answer = self.ec2.run_instances(
            ImageId=found,
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            UserData=render_user_data(spec, BOOT),
            IamInstanceProfile={"Name": "run"},
            InstanceInitiatedShutdownBehavior="terminate",
            Placement={"AvailabilityZone": f"{REGION}a"},
        )
        return str(answer["Instances"][0]["InstanceId"])

    def describe(self, instance: str) -> dict[str, Any]:
        answer = self.ec2.describe_instances(InstanceIds=[instance])
        found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return found

    def await_ready(self, address: str) -> Readiness:
        wait_until(lambda: self.run(address, "cat /opt/kedge/ready"), seconds=240)
        return parse_ready(self.run(address, "cat /opt/kedge/ready").encode())

    def run(self, address: str, command: str) -> str:
        return self.keys.ssh(address, command, check=False)


@pytest.fixture
def account(box: Box, tmp_path: Path) -> Account:
    return Account(box, tmp_path)


@pytest.mark.parametrize(("image", "torch"), [(DEEP_LEARNING, ["/opt/pytorch/bin"]), (DEBIAN, [])])
def test_a_machine_makes_itself_ready(account: Account, image: str, torch: list[str]) -> None:
    """On an image with torch and on a bare Debian: with its deadline armed, its agent from S3, and its watch."""
    began = time.time()
    instance = account.launch(account.spec(), image)
    address = account.describe(instance)["PublicIpAddress"]
    ready = account.await_ready(address)
    print(f"ready after {time.time() - began:.1f} s")
    assert ready.ok, ready
    machine = json.loads(account.run(address, "cat /opt/kedge/machine.json"))
    assert began < machine["created"] + 1 < time.time()
    assert machine["deadline"] - machine["created"] == LIFETIME - 45
    assert machine["path"] == torch
    owners = account.run(address, "cd /opt/kedge; stat -c '%U %a %n' . agent bin data machine.json boot.jsonl results")
    assert owners.splitlines() == [
        "root 1775 .",
        "root 755 agent",
        "root 755 bin",
        "root 775 data",
        "root 644 machine.json",
        "root 664 boot.jsonl",
        "job 755 results",
    ]
    armed = account.run(address, "systemctl is-active kedge-deadline.timer kedge-watch.service")
    assert armed.split() == ["active", "active"]
    elapses = account.run(address, 'date -d "$(systemctl show kedge-deadline.timer -P NextElapseUSecRealtime)" +%s')
    assert int(elapses) == machine["created"] + LIFETIME
    report = json.loads(account.run(address, "/opt/kedge/bin/kedge-agent report"))
    assert report["deadline"] == machine["deadline"]
    looked = account.run(
        address, "sudo systemctl start kedge-unready.service && systemctl is-active kedge-watch.service"
    )
    assert looked == "active", "the agent runs, so nothing else may end its machine"
    account.run(address, "sudo -u job /opt/kedge/bin/kedge-agent end")
    wait_until(lambda: account.describe(instance)["State"]["Name"] == "terminated")


def test_a_reboot_changes_neither_deadline_nor_volume(account: Account) -> None:
    """A volume that was attached late is formatted once, and keeps its data over a reboot.

    fact: bootcmd-every-boot.
    """
    made = account.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, VolumeType="gp3")["VolumeId"]
    volume = BootVolume(serial=made.replace("-", ""), target="imagenet", origin=Origin.MADE)
    instance = account.launch(account.spec(volume))
    wait_until(lambda: account.describe(instance)["State"]["Name"] == "running")
    account.ec2.attach_volume(VolumeId=made, InstanceId=instance, Device="/dev/sdf")
    address = account.describe(instance)["PublicIpAddress"]
    assert account.await_ready(address).ok
    look = "cat /proc/sys/kernel/random/boot_id; grep OnCalendar /etc/systemd/system/kedge-deadline.timer"
    account.run(address, "sudo sh -c 'echo kept >/opt/kedge/data/imagenet/file; rm /opt/kedge/ready; sync'")
    before = account.run(address, look).splitlines()
    account.run(address, "sudo systemctl reboot")
    wait_until(lambda: account.run(address, look).splitlines()[:1] not in ([], before[:1]))
    assert account.await_ready(address).ok
    assert account.run(address, look).splitlines()[1:] == before[1:]
    assert account.run(address, "systemctl is-active kedge-deadline.timer") == "active"
    assert account.run(
        address, "findmnt -no FSTYPE -T /opt/kedge/data/imagenet; cat /opt/kedge/data/imagenet/file"
    ) == ("ext4\nkept")


def test_a_deadline_ends_a_machine_that_never_got_its_agent(account: Account) -> None:
    """It powers itself off; until then the sentinel says what went wrong. fact: deadline-timer."""
    began = time.time()
    instance = account.launch(replace(account.spec(), agent_sha256="0" * 64, lifetime_seconds=45))
    address = account.describe(instance)["PublicIpAddress"]
    ready = account.await_ready(address)
    assert (ready.ok, ready.phases[-1].phase) == (False, "agent")
    wait_until(lambda: account.describe(instance)["State"]["Name"] == "terminated", seconds=240)
    assert time.time() - began < 240
    assert account.describe(instance)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_machine_whose_agent_never_comes_ends_long_before_its_deadline(account: Account) -> None:
    """Its agent isn't in the bucket: nothing would look after the machine, so it ends itself early."""
    spec = replace(account.spec(), agent_sha256="0" * 64, unready_seconds=3)
    instance = account.launch(spec)
    wait_until(lambda: account.describe(instance)["State"]["Name"] == "terminated", seconds=240)
    assert account.describe(instance)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    wait_until(lambda: not account.box.billing())
