"""A machine with GPUs finds a torch that drives them, or installs one, and runs its burn-in before anything else."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.boots import order, outcomes, readiness
from tests.agent.box import Box
from tests.agent.images import own_pip
from tests.agent.standin import make_environment, make_index

MakeBox = Callable[..., Box]
NVIDIA_SMI = """case "$*" in
*query*) seq 0 7 ;;
*) echo '| NVIDIA-SMI 570.195.03   CUDA Version: 12.8 |' ;;
esac"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with a GPU and its driver, whose own Python has pip but no torch."""
    programs = make_bare(tmp_path / "system")
    own_pip(programs)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


def make_bare(folder: Path) -> Path:
    programs = make_environment(folder)
    for left in folder.glob("lib/python*/site-packages/torch*"):
        shutil.rmtree(left)
    make_program(programs / "nvidia-smi", NVIDIA_SMI)
    return programs


def make_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def phases_of(box: Box, env: dict[str, str], **fields: Any) -> list[tuple[str, bool]]:
    order(box, **fields)
    box.call("boot", PATH=env["PATH"])
    return outcomes(box.root)


def failure(box: Box) -> str:
    return str(readiness(box.root)["phases"][-1]["error"])


def test_the_torch_of_the_images_environment_is_used(make_box: MakeBox, tmp_path: Path, bare: dict[str, str]) -> None:
    """It sees the GPUs: nothing is installed, all GPUs are checked, and the boot continues."""
    programs = make_environment(tmp_path / "opt/pytorch", gpus=8)
    box = make_box(path=[str(programs)])
    assert phases_of(box, bare, gpus=8) == [(name, True) for name in ("agent", "torch", "burn-in", "code", "start")]
    assert box.note("torch") == {
        "python": str(programs / "python3"),
        "torch": "2.9.1+rocm6.4",
        "archs": ["gfx942"] * 8,
        "made": False,
        "index": "",
        "cuda": "",
    }
    verdict = box.note("burn-in")
    assert (verdict["ok"], len(verdict["devices"])) == (True, 8)
    assert {device["memory_gib"] for device in verdict["devices"]} == {95.0}
    assert not (box.root / "torch").exists()


def test_the_torch_of_the_systems_python_is_used(make_box: MakeBox, tmp_path: Path) -> None:
    """If the image has no environment of its own."""
    programs = make_environment(tmp_path / "system")
    box = make_box()
    assert phases_of(box, {"PATH": f"{programs}:/usr/bin:/bin"}, gpus=1)[1:3] == [("torch", True), ("burn-in", True)]
    assert box.note("torch")["python"] == str(programs / "python3")


def test_an_environment_is_made_where_there_is_neither_torch_nor_pip(make_box: MakeBox, tmp_path: Path) -> None:
    """From the named index; the command finds it first, and the next boot doesn't make it again."""
    bare = {"PATH": f"{make_bare(tmp_path / 'system')}:/usr/bin:/bin"}
    index = make_index(tmp_path / "index")
    box = make_box(provider="do")
    assert phases_of(box, bare, gpus=1, torch_wheel=index)[1:3] == [("torch", True), ("burn-in", True)]
    assert box.note("torch")["made"]
    shutil.rmtree(tmp_path / "index")
    assert phases_of(box, bare, gpus=1, torch_wheel=index)[1:3] == [("torch", True), ("burn-in", True)]
    box.env |= bare
    box.start("python3 -c 'import sys, torch; print(sys.prefix, torch.__version__)'")
    box.await_state("succeeded", "failed")
    assert f" {box.root}/env 2.9.1+rocm6.4\n" in box.log()


def versions_in(folder: Path) -> dict[str, str]:
    packages = next(folder.glob("lib/python3*/site-packages"))
    return {found.name: found.version for found in importlib.metadata.distributions(path=[str(packages)])}


def test_torch_comes_with_the_packages_built_for_it(make_box: MakeBox, tmp_path: Path, bare: dict[str, str]) -> None:
    """From the same index: torchvision and torchaudio for this torch, although newer ones exist.

    fact: torch-index-of-a-version
    """
    box = make_box()
    phases = phases_of(box, bare, gpus=1, torch_wheel=make_index(tmp_path / "index"))
    assert phases[1:3] == [("torch", True), ("burn-in", True)]
    found = versions_in(box.root / "torch")
    built = {"torch": "2.9.1+rocm6.4", "torchvision": "0.24.1+rocm6.4", "torchaudio": "0.24.1+rocm6.4"}
    assert {name: found.get(name) for name in built} == built


def test_an_index_without_torchvision_gives_torch_alone(
    make_box: MakeBox, tmp_path: Path, bare: dict[str, str]
) -> None:
    """That is no reason to give the machine up; the boot's log says what is missing."""
    box = make_box()
    order(box, gpus=1, torch_wheel=make_index(tmp_path / "index", ("torchaudio",)))
    booted = box.call("boot", PATH=bare["PATH"])
    assert booted.returncode == 0, booted.stderr
    assert "torchvision" not in versions_in(box.root / "torch")
    assert b"has no torchvision and torchaudio for its torch: installing only torch" in booted.stderr


def test_nothing_is_installed_on_a_machine_without_gpus(
    make_box: MakeBox, tmp_path: Path, bare: dict[str, str]
) -> None:
    """Next to a torch for CPUs, the mere presence of torchvision breaks other imports."""
    box = make_box(provider="do")
    phases = phases_of(box, bare, gpus=0, torch_wheel=make_index(tmp_path / "index"))
    assert phases == [("agent", True), ("code", True), ("start", True)]
    box.env |= bare
    box.start("true", setup="true")
    assert box.await_state("succeeded", "failed")["state"] == "succeeded", box.log()
    assert not (box.root / "torch").exists()
    assert not {"torch", "torchvision"} & versions_in(box.root / "env").keys()


def test_an_unusable_torch_is_left_alone(make_box: MakeBox, tmp_path: Path, bare: dict[str, str]) -> None:
    """A build for CPUs stays; one in a container is reported, because commands run on the machine itself."""
    programs = make_environment(tmp_path / "opt/pytorch", version="2.9.1+cpu", gpus=0)
    before = sorted(tmp_path.glob("opt/**/*"))
    make_program(tmp_path / "docker", "echo rocm/pytorch:rocm7.0_ubuntu24.04; echo nginx:latest")
    box = make_box(path=[str(programs)])
    order(box, gpus=1, torch_wheel=make_index(tmp_path / "index"))
    booted = box.call("boot", PATH=f"{tmp_path}:{bare['PATH']}")
    assert booted.returncode == 0, booted.stderr
    assert box.note("torch")["made"]
    assert sorted(tmp_path.glob("opt/**/*")) == before
    assert b"torch 2.9.1+cpu of " in booted.stderr
    assert b"the container image rocm/pytorch:rocm7.0_ubuntu24.04 may hold a torch" in booted.stderr
    assert b"nginx" not in booted.stderr


@pytest.mark.parametrize(
    ("wheel", "told"),
    [
        ("file:///nowhere", "torch can't be installed"),
        ("rocm 6.4; rm -rf", "not a tag"),
        ("", "2.9.1+rocm6.4 from file://"),
    ],
    ids=["unreachable", "no tag", "no use"],
)
def test_a_machine_without_a_torch_for_its_gpus_is_not_ready(
    make_box: MakeBox, tmp_path: Path, bare: dict[str, str], wheel: str, told: str
) -> None:
    """The sentinel names the failed phase and what to do, and nothing is started."""
    box = make_box()
    wheel = wheel or make_index(tmp_path / "index", gpus=0)
    assert phases_of(box, bare, gpus=1, torch_wheel=wheel) == [("agent", True), ("torch", False)]
    assert told in failure(box)
    assert "fix: " in failure(box)


def test_a_machine_whose_driver_shows_no_gpu_fails_its_burn_in(make_box: MakeBox, tmp_path: Path) -> None:
    """Whatever torch the image has, no other one is downloaded: that would take minutes and change nothing."""
    programs = make_environment(tmp_path / "opt", gpus=0)
    box = make_box(path=[str(programs)])
    env = {"PATH": "/usr/bin:/bin"}
    assert phases_of(box, env, gpus=1) == [("agent", True), ("torch", True), ("burn-in", False)]
    assert "no driver shows a GPU" in failure(box)
    assert not (box.root / "torch").exists()


@pytest.mark.parametrize(
    ("machine", "gpus", "told"),
    [
        ({"gpus": 7}, 8, "7 of 8 GPUs are visible"),
        ({"gpus": 8, "fault": "matmul:2"}, 8, "cuda:2: a bf16 product is off by 2, more than 0.05"),
        ({"gpus": 8, "fault": "memory:7"}, 8, "cuda:7: memory block 0 of 95 doesn't hold what was written"),
        ({"fault": "crash"}, 1, "the check ended with -11"),
    ],
    ids=["one is missing", "one computes wrongly", "one forgets", "the driver crashes"],
)
def test_a_gpu_that_fails_its_burn_in_fails_the_boot(
    make_box: MakeBox, tmp_path: Path, bare: dict[str, str], machine: dict[str, Any], gpus: int, told: str
) -> None:
    """The phase `burn-in` fails, before any code is fetched; the verdict names the GPU."""
    box = make_box(path=[str(make_environment(tmp_path / "opt", **machine))])
    assert phases_of(box, bare, gpus=gpus, start_sha256="0" * 64) == [
        ("agent", True),
        ("torch", True),
        ("burn-in", False),
    ]
    assert told in failure(box)
    assert not box.note("burn-in")["ok"]
    assert box.command()["state"] == "idle"


def test_a_check_that_hangs_is_ended(box: Box, tmp_path: Path) -> None:
    """A GPU that never answers fails the check."""
    python = str(make_environment(tmp_path / "opt", fault="hang") / "python3")
    done = box.call("burn-in", "--gpus", "1", "--python", python, "--limit", "3")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == "the check timed out after 3 s"


def test_a_machine_without_gpus_has_no_burn_in(box: Box, bare: dict[str, str]) -> None:
    """None is expected, so none is looked for; the verb by hand reports that the check was skipped."""
    assert phases_of(box, bare) == [("agent", True), ("code", True), ("start", True)]
    done = box.call("burn-in")
    assert done.returncode == 0
    assert done.stderr == b"burn-in: skipped: this machine has no GPU\n"


def test_a_job_that_needs_no_torch_gets_none(box: Box, bare: dict[str, str]) -> None:
    """With `none` as the wheel's tag, nothing is downloaded."""
    assert phases_of(box, bare, gpus=1, torch_wheel="none") == [("agent", True), ("code", True), ("start", True)]


def test_gpus_in_use_are_not_checked(make_box: MakeBox, bare: dict[str, str]) -> None:
    """After a reboot the command may already run again; its memory must not be overwritten."""
    box = make_box()
    box.start("true")
    box.await_state("succeeded")
    assert ("burn-in", True) not in phases_of(box, bare, gpus=1)
    assert readiness(box.root)["ok"]


def test_the_check_itself_runs_on_a_real_torch(box: Box) -> None:
    """On the CPU: the product is within the tolerance, memory keeps its content, and the verdict is one line."""
    done = box.call("burn-in", "--device", "cpu", "--python", sys.executable, PATH=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict == box.note("burn-in")
    assert 0 < verdict["devices"][0]["matmul_error"] < verdict["devices"][0]["tolerance"] == 0.05
    assert verdict["devices"][0]["memory_gib"] > 0
    assert done.stderr.startswith(b"burn-in: passed: 1 x cpu, torch ")
    assert done.stderr.count(b"\n") == 1
