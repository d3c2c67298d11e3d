"""A machine boots again with everything that its job has planted for the next boot."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import BootVolume, Origin
from tests.cloudbox.aws.box import REGION, Box
from tests.in_cloudbox.aws.test_user_data import Account
from tests.support.waiting import wait_until

PLANT = Path(__file__).with_name("plant.sh")


@pytest.fixture
def account(box: Box, tmp_path: Path) -> Account:
    """An account in which runs have a role and a bucket."""
    return Account(box, tmp_path)


def test_files_planted_by_a_job_have_no_effect_at_the_next_boot(account: Account) -> None:
    """Neither root nor kedge's own user runs it, reads it as a setting, or writes through its links."""
    made = account.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, VolumeType="gp3")["VolumeId"]
    volume = BootVolume(serial=made.replace("-", ""), target="sets/imagenet", origin=Origin.MADE)
    instance = account.launch(account.spec(volume))
    wait_until(lambda: account.describe(instance)["State"]["Name"] == "running")
    account.ec2.attach_volume(VolumeId=made, InstanceId=instance, Device="/dev/sdf")
    address = account.describe(instance)["PublicIpAddress"]
    assert account.await_ready(address).ok
    boot_id = account.run(address, "sudo install -d -m 755 /srv/roots; cat /proc/sys/kernel/random/boot_id")
    script = base64.b64encode(PLANT.read_bytes()).decode()
    account.run(address, f"echo {script} | base64 -d | sudo -u job -H sh")
    assert account.run(address, "sudo readlink /opt/kedge/ready /opt/kedge/private").split() == ["/srv/roots"] * 2
    account.run(address, "sudo systemctl reboot")
    wait_until(lambda: account.run(address, "cat /proc/sys/kernel/random/boot_id") not in ("", boot_id))
    # The boot fails, because the volume's path leads out of the job's reach: that harms only the job.
    said = "test ! -L /opt/kedge/ready && head -c 12 /opt/kedge/ready"
    wait_until(lambda: account.run(address, said) == '{"ok": false')
    looks = {
        "ls -A /var/tmp /srv/roots | grep -e ran-as-root -e ran-as-kedge -e curl -e '^[a-z.]*json$'": "",
        "ls -A /srv/roots; stat -c '%U %a' /srv/roots; ls -d /etc/planted-*": "root 755",
        "findmnt -no OPTIONS /opt/kedge/volumes/* | grep -o nosuid,nodev": "nosuid,nodev",
        "systemctl is-active kedge-deadline.timer": "active",
        "stat -c %U /opt/kedge/agent /opt/kedge/bin /opt/kedge/boot /opt/kedge/machine.json | sort -u": "root",
    }
    assert {look: account.run(address, look) for look in looks} == looks
