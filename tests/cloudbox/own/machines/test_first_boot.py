"""First boots that are as unkind as a real one: what the box's images do besides what user-data asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.standin import H100, MI300X
from tests.cloudbox.machines.first_boot import MAKE_PACKAGE, FirstBoot
from tests.cloudbox.machines.gpus import Images
from tests.cloudbox.machines.lab import Lab, open_lab
from tests.cloudbox.machines.machines import MachineSpec
from tests.cloudbox.nspawn.needs import prepare_machines

PROBE = "python3 -c 'import json, torch; print(json.dumps([torch.cuda.device_count(), torch.cuda.is_available()]))'"
INSTALL = "sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -q ./toy.deb 2>&1"


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    if reason := prepare_machines():
        pytest.skip(reason)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab that must leave nothing behind, whatever its test did."""
    with open_lab(tmp_path) as lab:
        yield lab


def boot(lab: Lab, first: FirstBoot, *, gpus: int = 0, model: dict[str, str] = H100) -> MachineSpec:
    """Boot a machine, as the box's clouds do, without anything of kedge's."""
    images = Images()
    images.change_first_boot({name: getattr(first, name) for name in FirstBoot.__slots__})
    return lab.boot_up(image=images.render(gpus, model))


def test_the_images_own_upgrade_keeps_apt_out_of_the_way_and_needrestart_restarts_what_runs(lab: Lab) -> None:
    """Stopped, the upgrade goes on with its lock; once it is over a package is installed, and services are restarted.

    fact: first-boot-apt-holds-the-lock; fact: first-boot-needrestart.
    """
    spec = boot(lab, FirstBoot(apt_seconds=3600))
    lab.run(spec, MAKE_PACKAGE)
    lab.run(spec, "sudo systemctl stop apt-daily-upgrade.timer apt-daily-upgrade.service")
    assert "Could not get lock" in lab.run(spec, f"{INSTALL} || true")
    lab.run(
        spec, "sudo systemd-run --quiet --unit=innocent sleep 600; sudo systemd-run --quiet --unit=kedge-x sleep 600"
    )
    lab.run(spec, "sudo mkdir -p /etc/needrestart/conf.d")
    exclude = "$nrconf{override_rc}{qr(^kedge-)} = 0;"
    lab.run(spec, f"echo '{exclude}' | sudo tee /etc/needrestart/conf.d/kedge.conf")
    lab.run(spec, "sudo systemd-run --quiet sh -c 'sleep 2; pkill -f [h]old-lock'")
    said = lab.run(spec, INSTALL.replace("install", "-o DPkg::Lock::Timeout=60 install"))
    assert "systemctl restart innocent.service" in said
    assert "kedge-x" not in said


def test_gpus_come_after_the_boot_and_cuda_after_its_fabric_manager(lab: Lab) -> None:
    """nvidia-smi and NVML show GPUs that torch can't use yet. fact: gpu-nodes-come-late; fact: fabric-manager-802."""
    spec = boot(lab, FirstBoot(nodes_seconds=3600, torch_seconds=3600), gpus=2)
    lab.run(spec, "until systemctl -q is-active multi-user.target; do sleep 0.1; done")
    assert "couldn't communicate" in lab.run(spec, "nvidia-smi 2>&1 || true")
    lab.run(spec, "sudo ln -s /dev/null /dev/nvidia1; sudo touch /run/gpu-nodes.up")
    assert "CUDA Version: 12.8" in lab.run(spec, "nvidia-smi")
    assert lab.run(spec, "nvidia-smi --query-gpu=index,name,memory.used").splitlines() == [
        f"{index}, {H100['name']}, 1" for index in range(2)
    ]
    assert json.loads(lab.run(spec, PROBE)) == [2, False]
    assert "Error 802" in lab.run(spec, f"{PROBE} 2>&1 >/dev/null")
    lab.run(spec, "sudo touch /run/gpu-fabric.up")
    assert json.loads(lab.run(spec, PROBE)) == [2, True]


def test_an_image_may_lack_kfd_nodes_venv_and_pip_and_read_torch_slowly(lab: Lab) -> None:
    """ROCm counts no GPU before its nodes are there. fact: host-python-without-venv; fact: cold-volume."""
    spec = boot(lab, FirstBoot(nodes_seconds=0.5, no_venv=True, import_seconds=6), gpus=2, model=MI300X)
    lab.run(spec, "while [ ! -e /run/gpu-nodes.up ]; do sleep 0.1; done")
    assert lab.run(spec, "ls /dev/kfd /dev/dri").split() == ["/dev/kfd", "/dev/dri:", "renderD128", "renderD129"]
    timed = f"/usr/bin/env bash -c 'time {PROBE.replace(chr(39), chr(34))}' 2>&1 | grep real"
    assert json.loads(lab.run(spec, PROBE)) == [2, True]
    assert float(lab.run(spec, timed).removeprefix("real\t0m").removesuffix("s")) < 6, "only the first import is slow"
    for module in ("venv", "ensurepip", "pip"):
        assert "No module named" in lab.run(spec, f"/usr/bin/python3 -c 'import {module}' 2>&1 || true")
