"""GPU droplets are tested before the training starts: the real program, and a stand-in for ROCm's torch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.adapters.digitalocean.world import restock_mi300x
from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.laptop import TRAIN, Laptop

JOB = """
    name: toy
    workdir: .
    run: df --output=target data/set | tail -n 1 >results/disk && which python3 >results/python && python3 train.py
    data: {data/set: pictures}
    outputs: [results]
    envs: {STEPS: 3, PAUSE: 0.1}
    deadline: 10m
    budget: 5
    resources: {infra: do, accelerators: MI300X}
    supervisor: {kind: systemd, restarts: 0, grace: 5s}
"""


@pytest.fixture
def laptop(do_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a DigitalOcean account and a job for a GPU; nothing may bill when the test ends."""
    laptop.extra_env |= {**do_box.environ, "KEDGE_PROVIDER": "do", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    restock_mi300x(do_box)
    shutil.copy(TRAIN, laptop.home / "train.py")
    (laptop.home / "pictures").mkdir()
    (laptop.home / "pictures" / "cat.png").write_bytes(b"a cat")
    laptop.write_job(JOB)
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


def test_a_droplet_with_bad_gpu_memory_is_deleted_and_the_next_offer_trains(
    do_box: DigitalOceanBox, laptop: Laptop
) -> None:
    """The launch says why; the next droplet is in another region, and the ledger shows that nothing is left.

    The GPUs' device nodes appear 12 s after services have started, and the boot waits for them.
    fact: gpu-nodes-come-late
    Each droplet has a scratch disk with more room than its root disk: the data is there. Its Python can't make
    virtual environments, and the command gets one anyway. fact: host-python-without-venv
    """
    scratch_gib = (shutil.disk_usage("/").free >> 30) + 50
    do_box.change_first_boot(nodes_seconds=12, local_disk_gib=scratch_gib, no_venv=True)
    do_box.break_gpu("memory:0")
    launch = laptop.start("launch", "--yes")
    said, errors = launch.communicate(timeout=300)
    assert launch.returncode == 0, said + errors
    assert "cuda:0: memory block 0 of 95 doesn't hold what was written" in said
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    assert (results / "output" / "results" / "disk").read_text() == "/opt/kedge/data\n"
    assert (results / "output" / "results" / "python").read_text() == "/opt/kedge/env/bin/python3\n"
    made = [call for call in do_box.calls.find("POST", "/v2/droplets") if call.status == 202]
    assert len({call.body["region"] for call in made}) == len(made) == 2
    assert do_box.droplets() == []
    assert unsettled(laptop) == []
