"""The boot waits for all ordered GPUs: for their driver's device nodes, then for a CUDA that no longer answers 802."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import read_machine_config
from orchestrator.agent.gpu.wait import WAIT_SECONDS, await_gpus, count_gpus
from orchestrator.agent.python.torch_env import FABRIC_SECONDS, IMPORT_SECONDS, ensure_torch
from tests.agent.boots import order, outcomes
from tests.agent.box import Box
from tests.agent.standin import H100, make_environment, make_index
from tests.agent.test_accelerators import add_node
from tests.agent.test_burn_in import NVIDIA_SMI, make_program

MakeBox = Callable[..., Box]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs for a machine that otherwise has only the system's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def later(seconds: float, act: Callable[[], Any]) -> None:
    threading.Timer(seconds, act).start()


def test_the_waits_have_their_real_lengths() -> None:
    """Two minutes each for device nodes and for the fabric manager, three for an import from a cold volume."""
    assert (WAIT_SECONDS, FABRIC_SECONDS, IMPORT_SECONDS) == (120.0, 120.0, 180.0)


def test_the_boot_waits_for_amd_gpus_that_appear_one_after_the_other(tmp_path: Path, programs: Path) -> None:
    """The kernel's topology shows a CPU first, then one GPU, then the other. fact: gpu-nodes-come-late."""
    add_node(tmp_path, 0, 0, 0)
    add_node(tmp_path, 1, 90402, 1216)
    later(1.0, lambda: add_node(tmp_path, 2, 90402, 1216))
    assert await_gpus(2, root=tmp_path, seconds=60) == 2


def test_render_nodes_are_counted_if_the_topology_is_hidden(tmp_path: Path, programs: Path) -> None:
    """They don't count without /dev/kfd. fact: amd-kfd-after-reboot."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/card0").touch()
    (tmp_path / "dev/dri/renderD128").touch()
    assert count_gpus(tmp_path) == 0
    (tmp_path / "dev/kfd").touch()
    assert count_gpus(tmp_path) == 1


def test_the_wait_for_gpus_that_never_appear_ends(tmp_path: Path, programs: Path) -> None:
    """The GPUs that are there are reported; the burn-in reports the rest."""
    add_node(tmp_path, 1, 90402, 1216)
    assert await_gpus(8, root=tmp_path, seconds=0.1) == 1


def test_there_is_no_wait_without_a_driver(tmp_path: Path, programs: Path) -> None:
    """Neither ROCm nor nvidia-smi is there, so waiting would be useless."""
    began = time.monotonic()
    assert await_gpus(8, root=tmp_path) == 0
    assert time.monotonic() - began < 10


def test_the_boot_waits_until_nvidia_smi_shows_the_gpus(tmp_path: Path, programs: Path) -> None:
    """It fails until the driver has loaded."""
    make_program(programs / "nvidia-smi", f"[ -e {tmp_path}/up ] || exit 9\n{NVIDIA_SMI}")
    later(1.0, (tmp_path / "up").touch)
    assert await_gpus(8, root=tmp_path, seconds=60) == 8


def test_a_boot_waits_for_all_gpus_that_were_ordered_before_it_asks_torch(
    make_box: MakeBox, tmp_path: Path, programs: Path
) -> None:
    """One of eight is there at first. fact: gpu-nodes-come-late."""
    asked, up = tmp_path / "asked", tmp_path / "up"
    make_program(
        programs / "nvidia-smi",
        f"[ -e {asked} ] || {{ touch {asked}; echo 0; exit; }}\ntouch {up}\n{NVIDIA_SMI}",
    )
    image = make_environment(tmp_path / "opt/pytorch", **H100, gpus=8, needs=[str(up)])
    box = make_box(path=[str(image)])
    order(box, gpus=8, torch_wheel="file:///nowhere")
    booted = box.call("boot", PATH=f"{programs}:/usr/bin:/bin")
    assert outcomes(box.root)[:3] == [("agent", True), ("torch", True), ("burn-in", True)]
    assert b"1 of 8 GPUs are visible" in booted.stderr
    assert b"sees no GPU" not in booted.stderr


def test_a_torch_that_sees_no_gpu_yet_is_asked_again_before_anything_is_installed(
    make_box: MakeBox, tmp_path: Path, programs: Path
) -> None:
    """CUDA answers 802 until the fabric manager is up. fact: fabric-manager-802."""
    fabric = tmp_path / "fabric"
    # CUDA's version is asked for only after torch has seen no GPU.
    make_program(programs / "nvidia-smi", f'case "$*" in *query*) ;; *) touch {fabric} ;; esac\n{NVIDIA_SMI}')
    image = make_environment(tmp_path / "opt/pytorch", **H100, gpus=8, needs=[str(fabric)])
    box = make_box(path=[str(image)])
    order(box, gpus=8, torch_wheel="file:///nowhere")
    booted = box.call("boot", PATH=f"{programs}:/usr/bin:/bin")
    assert outcomes(box.root)[:3] == [("agent", True), ("torch", True), ("burn-in", True)]
    assert box.note("torch")["python"] == str(image / "python3")
    assert b"is the fabric manager not up yet?" in booted.stderr


def test_a_first_import_that_takes_long_is_no_reason_to_install_another_torch(
    make_box: MakeBox, tmp_path: Path, programs: Path
) -> None:
    """The disk is still being filled from a snapshot. fact: cold-volume."""
    image = make_environment(tmp_path / "opt/pytorch", import_seconds=2)
    box = make_box(path=[str(image)])
    order(box, gpus=1, torch_wheel="file:///nowhere")
    # The stand-in records its imports there.
    box.call("boot", PATH=f"{programs}:/usr/bin:/bin", TMPDIR=str(tmp_path))
    assert (tmp_path / "torch-stand-in-was-imported").exists()
    assert outcomes(box.root)[:3] == [("agent", True), ("torch", True), ("burn-in", True)]
    assert box.note("torch")["python"] == str(image / "python3")


def test_torch_is_installed_if_the_fabric_manager_never_comes(
    make_box: MakeBox, tmp_path: Path, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image's torch may be too old for these GPUs; the log says how long the boot waited."""
    make_program(programs / "nvidia-smi", NVIDIA_SMI)
    image = make_environment(tmp_path / "opt/pytorch", **H100, gpus=8, needs=["/never"])
    (programs / "python3").symlink_to(make_environment(tmp_path / "system", gpus=0) / "python3")
    box = make_box(path=[str(image)])
    layout = Layout(box.root)
    index = make_index(tmp_path / "index", **H100)
    torch = ensure_torch(layout, read_machine_config(layout), index, gpus=8, fabric_seconds=0.1)
    assert torch is not None
    assert (torch.made, torch.archs, torch.index) == (True, ("sm_90",), index)
    assert "after 0.1 s torch still sees none of the GPUs that nvidia-smi shows" in capsys.readouterr().err
