"""A whole run in the user's own network: a private machine, reached through a bastion, which is a second sshd."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.adapters.remote.sshd import Sshd, running_sshd
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    data: {{numbers: numbers}}
    envs: {{STEPS: 3, PAUSE: 0.1, SAVE_EVERY: 10}}
    deadline: 10m
    resources: {{accelerators: T4, region: us-east-1}}
    supervisor: {{kind: tmux, restarts: 0}}
    provider: {{aws: {{subnet: {subnet}, jump_host: bastion, tags: {{team: vision}}}}}}
"""
NETWORK = "127.77.0.0/16"
"""The box boots machines at loopback addresses only; no AWS network could have these."""


@pytest.fixture
def bastion(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "bastion") as server:
        yield server


@pytest.fixture
def laptop(box: Box, laptop: Laptop, bastion: Sshd) -> Iterator[Laptop]:
    """A user's computer whose SSH configuration knows the bastion."""
    set_up(box)
    address, known = bastion.address, laptop.home / "known"
    known.write_text(f"[127.0.0.1]:{address.port} {address.host_key}\n")
    (laptop.home / "ssh_config").write_text(
        f"Host bastion\n HostName 127.0.0.1\n Port {address.port}\n User {address.user}\n"
        f" IdentityFile {address.key_file}\n UserKnownHostsFile {known}\n"
    )
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    (laptop.home / "numbers").mkdir()
    (laptop.home / "numbers" / "one").write_text("1")
    yield laptop
    assert box.billing() == [], "something is left billing"


def test_a_private_machine_is_rented_used_and_ended_through_a_bastion(box: Box, laptop: Laptop, bastion: Sshd) -> None:
    """Boot, code, data by rsync, commands and results go through it, and the network stays as it was.

    Without `--ssh-from`, port 22 is open to the network's own addresses.
    """
    ec2 = box.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=NETWORK)["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="127.77.7.0/24", AvailabilityZone="us-east-1c")
    subnet = made["Subnet"]["SubnetId"]
    laptop.write_job(JOB.format(subnet=subnet))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    (instance,) = (one for each in ec2.describe_instances()["Reservations"] for one in each["Instances"])
    assert (instance["SubnetId"], "PublicIpAddress" in instance) == (subnet, False)
    assert {"Key": "team", "Value": "vision"} in instance["Tags"]
    host = instance["PrivateIpAddress"]
    assert f"target {host} port 22" in bastion.log
    assert laptop.kedge("exec", "--", "cat", "numbers/one") == "1"
    assert f"ProxyCommand ssh -F {laptop.home / 'ssh_config'}" in (laptop.state / "ssh_config").read_text()
    (rules,) = (
        group["IpPermissions"]
        for group in ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
        if group["GroupName"] != "default"
    )
    assert [each["CidrIp"] for rule in rules for each in rule["IpRanges"]] == [NETWORK]
    wait_until(lambda: "step 3 of" in laptop.kedge("logs", run))
    laptop.kedge("teardown", "--yes")
    steps = (laptop.home / "kedge-results" / run / "output" / "results" / "steps.log").read_text()
    assert steps.split()[1] == run
    assert [each["SubnetId"] for each in ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]] == [subnet]
    assert leftovers(box) == []
