"""What a command's environment says of GPUs: overrides, visibility and caches. Nothing is replaced that a job set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
VISIBILITY = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""On ROCm each of them filters what the one before has left, so that two of them hide more than either says."""

CACHES = {
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen-kernels",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "PYTORCH_TUNABLEOP_FILENAME": "tunableop/tunableop_results.csv",
}
"""Where compilers keep what they have made: variable -> folder, or a file in one.

Comgr compiles what HIP's runtime compiler is given; whether its cache is on is ROCm's own default (AMD_COMGR_CACHE).
TunableOp is used only where a job sets PYTORCH_TUNABLEOP_ENABLED=1, and puts a GPU's number into its file's name.
fact: comgr-cache, fact: tunableop-file
"""

# Where MIOpen's, Comgr's and TunableOp's are of no use: CUDA's torch has one implementation of each operator.
_AMD_ONLY = ("MIOPEN", "AMD_", "PYTORCH_TUNABLEOP")
# Comgr would keep 30 GiB, of which nothing could be copied to the store: caches.LIMIT_BYTES is for all of them.
_COMGR_POLICY = "prune_interval=1h:prune_expiration=0h:cache_size=75%:cache_size_bytes=128m:cache_size_files=0"

# Cards that ROCm's libraries have no kernels of their own for, and whose they run. Source: ROCm's "Compatibility
# matrix", which lists gfx1030, gfx1100 and gfx1101 by name, and what works for W0's RX 7800 XT (gfx1101): 11.0.0.
_OVERRIDES = {"gfx103": "10.3.0", "gfx110": "11.0.0"}
# AMD's GPUs for computing: MI100, MI200s, MI300s, MI350s. Not all of gfx9: gfx90c is a laptop's.
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
) -> tuple[dict[str, str], list[str]]:
    """Return the environment as this machine's GPUs need it, and a remark for each thing that was taken away.

    Args:
        env: what the command would find without this.
        archs: of AMD's GPUs, the biggest first; none for NVIDIA's, and for none.
        own: what the job itself sets: it goes before what is inherited.
        cache: the folder below which compiled kernels are kept.
        mode: the job's: a short trial doesn't search for the fastest kernels.
        is_local: somebody's own computer, which may have a card that isn't sold for this.
    """
    env = dict(env)
    remarks: list[str] = []
    if not is_local:
        # Somebody's own computer keeps its caches where they are.
        for name, folder in CACHES.items():
            if archs or not name.startswith(_AMD_ONLY):
                env.setdefault(name, str(cache / folder))
        if archs:
            env.setdefault("AMD_COMGR_CACHE_POLICY", _COMGR_POLICY)
    if archs:
        if mode in _QUICK_MODES:
            env.setdefault("MIOPEN_FIND_MODE", "FAST")
        remarks += _settle_override(env, archs, is_local=is_local)
        remarks += _settle_visibility(env, own)
    return env, remarks


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
