"""A run with several machines on AWS in the box: they boot, work and end together."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    num_nodes: 2
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.2, SAVE_EVERY: 10}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, region: us-east-1}
    supervisor: {kind: tmux, restarts: 0, grace: 10s}
"""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account that a bootstrap has set up."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    yield laptop
    assert box.billing() == [], "something is left billing"


def test_two_machines_boot_and_work_in_one_place_and_leave_nothing(box: Box, laptop: Laptop) -> None:
    """Both are in a placement group; each has its rank, its place in the bucket, and a name for plain ssh.

    They are of the second offer: of the first two machines one never boots, so both are ended.
    """
    laptop.write_job(JOB)
    box.fail_start("Client.InternalError")
    said = laptop.kedge("launch", "--yes", "--detach")
    assert "2 machines were ended; another offer is taken" in said
    assert [each["State"]["Name"] for each in instances(box)].count("running") == 2
    assert len({each["Placement"]["AvailabilityZone"] for each in instances(box)}) == 2
    (status,) = laptop.json("status")
    run = status["run"]
    assert [(machine["id"], machine["rank"]) for machine in status["machines"]] == [
        (f"{run}-m3", 0),
        (f"{run}-m4", 1),
    ]
    wait_until(lambda: {each["command"]["state"] for each in laptop.json("status")[0]["reports"]} == {"running"})
    ec2 = box.client("ec2", REGION)
    # Those of both offers are removed at the end.
    assert {group["Strategy"] for group in ec2.describe_placement_groups()["PlacementGroups"]} == {"cluster"}
    hosts = re.findall(r"^Host (\S+)$", (laptop.state / "ssh_config").read_text(), re.MULTILINE)
    assert {run, f"{run}-m4"} <= set(hosts)

    def shipped() -> set[str]:
        listed = box.client("s3").list_objects_v2(Bucket="kedge-test", Prefix=f"runs/{run}/").get("Contents", [])
        return {each["Key"] for each in listed if each["Key"].endswith("manifest.json")}

    wait_until(lambda: shipped() == {f"runs/{run}/manifest.json", f"runs/{run}/nodes/1/manifest.json"}, seconds=120)
    if all(machine["has_network"] for machine in box.machines()):
        assert_a_closed_port_is_named(box, laptop, run)
    laptop.kedge("teardown", run, "--yes")
    assert leftovers(box) == []
    assert box.billing() == []


def assert_a_closed_port_is_named(box: Box, laptop: Laptop, run: str) -> None:
    """Close the machines to each other, start again, and open them: the log says what is in the way, and they meet."""
    ec2 = box.client("ec2", REGION)
    (group,) = [
        each
        for each in ec2.describe_security_groups()["SecurityGroups"]
        if any(rule["UserIdGroupPairs"] for rule in each["IpPermissions"])
    ]
    (among,) = [rule for rule in group["IpPermissions"] if rule["UserIdGroupPairs"]]
    rule = {"IpProtocol": among["IpProtocol"], "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}
    laptop.kedge("stop", run, "--yes")
    ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    laptop.kedge("start", run, "--yes")

    def member_log() -> str:
        ssh = ["ssh", "-F", str(laptop.state / "ssh_config"), f"{run}-m4", "cat /opt/kedge/results/run.log"]
        return subprocess.run(ssh, check=True, capture_output=True, text=True, timeout=60).stdout

    closed = "port 29500: no answer in time; does a firewall close the port?"
    wait_until(lambda: closed in member_log(), pause=0.5)
    assert laptop.json("status", run)[0]["reports"][0]["command"]["state"] == "setting-up"
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    wait_until(lambda: {each["command"]["state"] for each in laptop.json("status")[0]["reports"]} == {"running"})
