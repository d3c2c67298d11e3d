"""Which GPUs a machine has, which wheel of torch suits them, and which GPU variables a command gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.errors import RequestError
from orchestrator.agent.gpu.accelerators import Accelerators, find_accelerators, find_architectures, name_architecture
from orchestrator.agent.gpu.variables import render_gpu_environment
from orchestrator.agent.python.wheels import choose_index, choose_tag
from orchestrator.agent.run.caches import LIMIT_BYTES
from tests.agent.box import Box
from tests.agent.test_environment import DUMP

MakeBox = Callable[..., Box]
MI300X = ("gfx942",) * 8
RX7800XT = ("gfx1101", "gfx1036")
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
CACHE = Path("/root/cache/key")


def add_node(root: Path, number: int, version: int, units: int) -> None:
    """Add a node to the kernel's topology; a CPU has version 0."""
    node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    node.mkdir(parents=True)
    (node / "properties").write_text(
        f"cpu_cores_count {0 if version else 16}\nsimd_count {units}\ngfx_target_version {version}\nhive_id 99\nname\n"
    )


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Make programs that print a text; the PATH has only these and the system's."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, text: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\n")
        (folder / name).chmod(0o755)

    return make


def environment_of(archs: tuple[str, ...], env: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    return render_gpu_environment(env or {}, archs, **{"own": {}, "cache": CACHE, **more})[0]


@pytest.mark.parametrize(
    ("version", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110001, "gfx1101"), (100306, "gfx1036")],
    ids=str,
)
def test_architectures_are_named_as_compilers_name_them(version: int, name: str) -> None:
    """Minor version and stepping are hexadecimal digits."""
    assert name_architecture(version) == name


def test_the_biggest_gpu_comes_first(tmp_path: Path) -> None:
    """A desktop's processor has graphics, too, which may come first in the kernel's list."""
    add_node(tmp_path, 0, 0, 0)
    add_node(tmp_path, 1, 100306, 4)
    add_node(tmp_path, 2, 110001, 120)
    assert find_architectures(tmp_path) == ("gfx1101", "gfx1036")
    assert find_architectures(tmp_path / "nothing") == ()


def test_rocms_version_is_read_from_its_file_or_from_amd_smi(tmp_path: Path, tools: Callable[[str, str], None]) -> None:
    """From the file first; if it is elsewhere, from amd-smi."""
    add_node(tmp_path, 1, 90402, 1216)
    assert find_accelerators(tmp_path) == Accelerators(archs=("gfx942",))
    tools("amd-smi", "AMDSMI Tool: 25.3.0+ede62f2 | AMDSMI Library version: 25.3.0 | ROCm version: 6.4.0 | amdgpu: 6.1")
    assert find_accelerators(tmp_path).rocm == "6.4.0"
    (tmp_path / "opt/rocm/.info").mkdir(parents=True)
    (tmp_path / "opt/rocm/.info/version").write_text("7.0.2-56\n")
    assert find_accelerators(tmp_path) == Accelerators(archs=("gfx942",), rocm="7.0.2")


def test_of_several_rocms_the_newest_counts(tmp_path: Path) -> None:
    """Version numbers are compared, not texts: 7.12 is newer than 7.9. fact: rocm-core-folder."""
    add_node(tmp_path, 1, 90402, 1216)
    for version in ("7.9.0", "7.12.0", "7.11.0"):
        folder = tmp_path / f"opt/rocm/core-{version[:-2]}/.info"
        folder.mkdir(parents=True)
        (folder / "version").write_text(f"{version}\n")
    assert find_accelerators(tmp_path) == Accelerators(archs=("gfx942",), rocm="7.12.0")


def test_the_cuda_of_nvidias_driver_is_read_from_its_table(tmp_path: Path, tools: Callable[[str, str], None]) -> None:
    """The installed CUDA doesn't count: a wheel brings its own."""
    tools("nvidia-smi", "| NVIDIA-SMI 570.195.03    Driver Version: 570.195.03    CUDA Version: 12.8     |")
    assert find_accelerators(tmp_path) == Accelerators(cuda="12.8")


@pytest.mark.parametrize(
    ("found", "tag"),
    [
        (Accelerators(archs=MI300X, rocm="6.4.1"), "rocm6.4"),
        (Accelerators(archs=MI300X, rocm="6.2.4"), "rocm6.2.4"),
        (Accelerators(archs=MI300X, rocm="7.0.2"), "rocm7.1"),
        (Accelerators(archs=MI300X, rocm="7.14.0"), "rocm7.2"),
        (Accelerators(archs=MI300X, rocm="8.0"), "rocm7.2"),
        (Accelerators(archs=MI300X, rocm="5.7.1"), "rocm6.1"),
        (Accelerators(archs=MI300X), "rocm7.2"),
        (Accelerators(cuda="12.8"), "cu128"),
        (Accelerators(cuda="12.2"), "cu124"),
        (Accelerators(cuda="13.2"), "cu130"),
        (Accelerators(cuda="11.4"), "cu118"),
        (Accelerators(), "cpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.rocm or value.cuda or 'unknown'}",
)
def test_the_wheel_suits_the_driver(found: Accelerators, tag: str) -> None:
    """The newest that isn't newer than the driver's, of the same major version if possible; else the newest of all."""
    assert choose_tag(found) == tag
    assert choose_index(found) == f"https://download.pytorch.org/whl/{tag}"


def test_the_job_may_choose_its_wheel() -> None:
    """By its tag, or by the URL of an index; anything else is refused, because it would become part of a URL."""
    found = Accelerators(archs=MI300X, rocm="6.4.1")
    assert choose_index(found, "rocm7.2") == "https://download.pytorch.org/whl/rocm7.2"
    assert choose_index(found, "https://repo.radeon.com/rocm/manylinux/") == "https://repo.radeon.com/rocm/manylinux/"
    with pytest.raises(RequestError, match="not a tag"):
        choose_index(found, "../rocm")


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "rented"])
def test_an_mi300x_never_gets_the_override(is_local: bool) -> None:
    """Whoever set it: the kernels would be those of another GPU. The log says what was removed."""
    own = {OVERRIDE: "11.0.0"}
    env, remarks = render_gpu_environment(own, MI300X, own=own, cache=CACHE, is_local=is_local)
    assert OVERRIDE not in env
    assert remarks == ["HSA_OVERRIDE_GFX_VERSION=11.0.0 was removed: it is not for gfx942"]
    assert OVERRIDE not in environment_of(MI300X, is_local=is_local)


@pytest.mark.parametrize(
    ("archs", "version"),
    [(RX7800XT, "11.0.0"), (("gfx1100",), "11.0.0"), (("gfx1031",), "10.3.0"), (("gfx1201",), None), ((), None)],
    ids=["RX 7800 XT", "RX 7900 XTX", "RX 6700 XT", "RX 9070 XT", "no GPU"],
)
def test_a_consumer_card_at_home_gets_the_override_that_it_needs(archs: tuple[str, ...], version: str | None) -> None:
    """For the biggest GPU, as W0's RX 7800 XT needs it; a value that is already set stays."""
    assert environment_of(archs, is_local=True).get(OVERRIDE) == version
    assert environment_of(archs, {OVERRIDE: "9.0.0"}, is_local=True)[OVERRIDE] == "9.0.0"
    assert OVERRIDE not in environment_of(archs)


@pytest.mark.parametrize(
    ("env", "own", "kept"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "2"}, {}, {"HIP_VISIBLE_DEVICES": "0,1"}),
        (
            {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "7"},
            {"CUDA_VISIBLE_DEVICES": "7"},
            {"CUDA_VISIBLE_DEVICES": "7"},
        ),
        ({"ROCR_VISIBLE_DEVICES": "3"}, {}, {"ROCR_VISIBLE_DEVICES": "3"}),
        ({}, {}, {}),
    ],
    ids=["inherited", "the job's", "one", "none"],
)
def test_exactly_one_variable_says_which_gpus_are_visible(
    env: dict[str, str], own: dict[str, str], kept: dict[str, str]
) -> None:
    """Two variables would each hide GPUs that the other shows. The job's own value wins over the inherited one."""
    made, remarks = render_gpu_environment(env, MI300X, own=own, cache=CACHE)
    assert {name: text for name, text in made.items() if "VISIBLE" in name} == kept
    assert len(remarks) == len(env) - len(kept)
    both = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}
    assert both.items() <= environment_of((), both).items()


def test_caches_are_in_the_folder_that_is_copied() -> None:
    """In the machine's folder, unless somebody has chosen another one; at home they stay where they are.

    fact: comgr-cache, fact: tunableop-file
    """
    env = environment_of(MI300X, {"TRITON_CACHE_DIR": "/scratch"})
    assert env == {
        "MIOPEN_USER_DB_PATH": "/root/cache/key/miopen",
        "MIOPEN_CUSTOM_CACHE_DIR": "/root/cache/key/miopen-kernels",
        "TORCHINDUCTOR_CACHE_DIR": "/root/cache/key/inductor",
        "TRITON_CACHE_DIR": "/scratch",
        "AMD_COMGR_CACHE_DIR": "/root/cache/key/comgr",
        "AMD_COMGR_CACHE_POLICY": env["AMD_COMGR_CACHE_POLICY"],
        "PYTORCH_TUNABLEOP_FILENAME": "/root/cache/key/tunableop/tunableop_results.csv",
    }
    assert set(environment_of(())) == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    assert environment_of((), is_local=True) == {}


def test_comgr_keeps_no_more_than_can_be_copied() -> None:
    """Comgr's own limit of 30 GiB would be too large to copy; whether it caches at all is still ROCm's choice."""
    env = environment_of(MI300X)
    assert ":cache_size_bytes=128m:" in env["AMD_COMGR_CACHE_POLICY"]
    assert LIMIT_BYTES > 128 << 20
    assert "AMD_COMGR_CACHE" not in env
    assert environment_of(MI300X, {"AMD_COMGR_CACHE_POLICY": "mine"})["AMD_COMGR_CACHE_POLICY"] == "mine"


def test_a_trial_does_not_search_for_the_fastest_kernels() -> None:
    """Only in short modes; a job's own choice stays, and so does the TF32 that it allows."""
    assert environment_of(MI300X, mode="validate")["MIOPEN_FIND_MODE"] == "FAST"
    assert environment_of(MI300X, {"MIOPEN_FIND_MODE": "NORMAL"}, mode="validate")["MIOPEN_FIND_MODE"] == "NORMAL"
    assert "MIOPEN_FIND_MODE" not in environment_of(MI300X, mode="full")
    assert environment_of(MI300X, {"HIPBLASLT_ALLOW_TF32": "1"})["HIPBLASLT_ALLOW_TF32"] == "1"


def test_a_command_on_an_mi300x_finds_what_it_needs(make_box: MakeBox) -> None:
    """Its cache folders exist, the override is gone although the job sets it, and the log says so once."""
    box = make_box(provider="do")
    (box.root / "torch.json").write_text(
        '{"python": "/opt/bin/python3", "torch": "2.9.1+rocm6.4", "archs": ["gfx942"]}'
    )
    box.start(
        f'{DUMP}; touch "$MIOPEN_USER_DB_PATH/x" "$PYTORCH_TUNABLEOP_FILENAME"',
        mode="validate",
        envs={OVERRIDE: "11.0.0"},
        setup="true",
    )
    assert box.await_state("succeeded", "failed")["state"] == "succeeded", box.log()
    env = (box.root / "results/output/env").read_text()
    assert OVERRIDE not in env
    assert f"TRITON_CACHE_DIR={box.root}/cache/gfx942-2.9.1-rocm6.4/triton\0" in env
    assert "MIOPEN_FIND_MODE=FAST\0" in env
    assert box.log().count("HSA_OVERRIDE_GFX_VERSION=11.0.0 was removed: it is not for gfx942\n") == 1
