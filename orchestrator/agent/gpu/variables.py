"""GPU-related environment variables: overrides, visibility and caches. Variables that the job sets are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
VISIBILITY = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""On ROCm each of these filters the GPUs that the previous one left, so that two of them hide more than intended."""

CACHES = {
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen-kernels",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "PYTORCH_TUNABLEOP_FILENAME": "tunableop/tunableop_results.csv",
}
"""The compilers' caches: variable -> folder, or a file in one.

Comgr is the back end of HIP's runtime compiler; ROCm decides whether its cache is on (AMD_COMGR_CACHE). TunableOp is
used only if a job sets PYTORCH_TUNABLEOP_ENABLED=1, and adds the GPU's number to its file's name.
fact: comgr-cache, fact: tunableop-file
"""

# Architectures that don't need the caches of MIOpen, Comgr and TunableOp, because CUDA's torch has one implementation
# of each operator.
_AMD_ONLY = ("MIOPEN", "AMD_", "PYTORCH_TUNABLEOP")
# By default Comgr keeps 30 GiB, too much to upload: caches.LIMIT_BYTES is for all caches together.
_COMGR_POLICY = "prune_interval=1h:prune_expiration=0h:cache_size=75%:cache_size_bytes=128m:cache_size_files=0"

# Cards without kernels of their own in ROCm's libraries, and the architecture whose kernels they can run. Source:
# ROCm's "Compatibility matrix", which lists gfx1030, gfx1100 and gfx1101, and a test on W0's RX 7800 XT (gfx1101):
# 11.0.0.
_OVERRIDES = {"gfx103": "10.3.0", "gfx110": "11.0.0"}
# AMD's compute GPUs: MI100, MI200s, MI300s, MI350s. Not all of gfx9: gfx90c is in laptops.
_INSTINCT = frozenset({"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
_QUICK_MODES = ("validate", "smoke")


def render_gpu_environment(
    env: Mapping[str, str],
    archs: tuple[str, ...],
    *,
    own: Mapping[str, str],
    cache: Path,
    mode: str = "",
    is_local: bool = False,
    gpus: tuple[int, ...] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Return the environment for this machine's GPUs, and a log line for each variable that was removed.

    Args:
        env: the environment so far.
        archs: architectures of AMD GPUs, largest first; none for NVIDIA or without GPUs.
        own: the job's own variables, which take precedence over inherited ones.
        cache: the parent folder for compiled kernels.
        mode: the job's mode: a short trial doesn't search for the fastest kernels.
        is_local: the user's own computer, which may have a consumer card.
        gpus: the numbers of the only GPUs that are visible, which count from 0 for the command; None for all.
    """
    env = dict(env)
    remarks: list[str] = []
    if not is_local:
        # The user's own computer keeps its caches where they are.
        _settle_caches(env, archs, cache)
    if archs:
        if mode in _QUICK_MODES:
            env.setdefault("MIOPEN_FIND_MODE", "FAST")
        remarks += _settle_override(env, archs, is_local=is_local)
    if gpus is not None:
        remarks += _show_only(env, "HIP_VISIBLE_DEVICES" if archs else "CUDA_VISIBLE_DEVICES", gpus, own)
    elif archs:
        remarks += _settle_visibility(env, own)
    return env, remarks


def _settle_caches(env: dict[str, str], archs: tuple[str, ...], cache: Path) -> None:
    for name, folder in CACHES.items():
        if archs or not name.startswith(_AMD_ONLY):
            env.setdefault(name, str(cache / folder))
    if archs:
        env.setdefault("AMD_COMGR_CACHE_POLICY", _COMGR_POLICY)


def _show_only(env: dict[str, str], name: str, gpus: tuple[int, ...], own: Mapping[str, str]) -> list[str]:
    """Let one variable say which GPUs a task sees, instead of all others."""
    dropped = [other for other in VISIBILITY if other in own]
    for other in VISIBILITY:
        env.pop(other, None)
    env[name] = ",".join(str(gpu) for gpu in gpus)
    return [f"{other} was replaced: {name}={env[name]} are the task's `gpus`" for other in dropped]


def _settle_override(env: dict[str, str], archs: tuple[str, ...], *, is_local: bool) -> list[str]:
    instinct = next((arch for arch in archs if arch in _INSTINCT), "")
    if instinct:
        override = env.pop(OVERRIDE, None)
        return [] if override is None else [f"{OVERRIDE}={override} was removed: it is not for {instinct}"]
    if is_local and archs[0][:6] in _OVERRIDES:
        env.setdefault(OVERRIDE, _OVERRIDES[archs[0][:6]])
    return []


def _settle_visibility(env: dict[str, str], own: Mapping[str, str]) -> list[str]:
    present = [name for name in VISIBILITY if name in env]
    if len(present) < 2:
        return []
    kept = next((name for name in present if name in own), present[0])
    dropped = [name for name in present if name != kept]
    for name in dropped:
        del env[name]
    return [f"{name} was removed: {kept}={env[kept]} says which GPUs are visible" for name in dropped]
