"""GPUs are tested before the training starts: the real program on AWS in the box, and a stand-in for torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.aws.world import set_up
from tests.agent.images import make_wheels
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import TRAIN, Laptop

JOB = """
    name: toy
    workdir: .
    start: boot
    setup: pip install --no-index --find-links wheels toy
    run: python3 -c 'import toy, torch' && python3 train.py
    outputs: [results]
    envs: {STEPS: 3, PAUSE: 0.1}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    supervisor: {kind: systemd, restarts: 0, grace: 10s}
"""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account and a job for a GPU; nothing may bill when the test ends."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    make_wheels(laptop.home / "wheels", "toy")
    laptop.write_job(JOB)
    yield laptop
    assert box.billing() == [], "something is left billing"


def read(laptop: Laptop, name: str) -> list[Any]:
    """Read a JSON Lines file in the machine's folder."""
    return [json.loads(line) for line in laptop.kedge("exec", "--", "cat", f"/opt/kedge/{name}").splitlines()]


def test_a_machine_tests_its_gpus_before_it_fetches_anything(box: Box, laptop: Laptop) -> None:
    """With the torch that sees them, which is the system's; the other one sees none, and is left alone.

    It waits until CUDA can use them: the fabric manager is up 20 s after nvidia-smi shows them. `setup` installs
    packages beside that torch, although Debian's pip refuses to install anything. fact: fabric-manager-802
    """
    box.change_first_boot(torch_seconds=20)
    laptop.kedge("launch", "--yes", "--detach", "--keep")
    phases = [phase["phase"] for phase in read(laptop, "boot.jsonl") if phase["ok"]]
    assert phases[-6:] == ["agent", "scratch", "torch", "burn-in", "code", "start"]
    ((torch,), (verdict,)) = read(laptop, "torch.json"), read(laptop, "burn-in.json")
    assert (torch["python"], torch["archs"], torch["made"]) == ("/usr/bin/python3", ["sm_75"], False)
    assert [device["name"] for device in verdict["devices"]] == ["Tesla T4"]
    assert len(box.machines()) == 1
    journal = laptop.kedge("exec", "--admin", "--", "sudo", "journalctl", "--unit=kedge-boot", "--output=cat")
    assert "is the fabric manager not up yet?" in journal
    ((made,),) = (read(laptop, "env.json"),)
    assert (made["base"], made["torches"]) == ("/usr/bin/python3", {"torch": "2.7.1"})
    laptop.kedge("teardown", "--yes", "--no-fetch")


def test_a_machine_whose_gpu_computes_wrongly_is_ended_and_the_next_offer_trains(box: Box, laptop: Laptop) -> None:
    """The launch says why; the next machine is in another zone, and the meter shows that neither is left."""
    box.break_gpu("matmul:0")
    launch = laptop.start("launch", "--yes")
    said, errors = launch.communicate(timeout=300)
    assert launch.returncode == 0, said + errors
    assert "fails its burn-in" in said
    assert "cuda:0: a bf16 product is off by 2, more than 0.05" in said
    unfit, fit = instances(box)
    assert unfit["Placement"]["AvailabilityZone"] != fit["Placement"]["AvailabilityZone"]
    assert [one["State"]["Name"] for one in (unfit, fit)] == ["terminated", "terminated"]
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    (status,) = laptop.json("status", "--all")
    assert (status["state"], status["stage"]) == ("succeeded", "ended")
    assert {bill.id for bill in box.meter().bills if bill.kind == "instance"} == {
        unfit["InstanceId"],
        fit["InstanceId"],
    }
    assert leftovers(box) == []
