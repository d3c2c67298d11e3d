"""Probes and checks the torch of the Python that runs it: `python -I torch_check.py probe | check ...`.

A standalone program for any Python of the image: it imports torch and the standard library, nothing of the agent.
ROCm's torch calls its devices `cuda` too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

# Imported by name, because the agent's own modules must not depend on torch.
_TORCH = "torch"

MATMUL_SIZE = 1024
"""Rows and columns of the matrices that are compared."""

TOLERANCE = 0.05
"""The largest allowed difference of an element from the float64 product, in standard deviations of an element.

The factors are drawn from N(0, 1) and are exact in bf16, so an element's standard deviation is sqrt(size) = 32. The
largest of a million elements is about 5 of these, 160; bf16 has 8 bits, so rounding alone causes an error of up to 0.5
there, 1.6 % of a standard deviation. Measured on a CPU: 0.0155 (torch 2.13.0, November 2026).
"""

_BLOCK_BYTES = 1 << 30
_CPU_BLOCK_BYTES = 1 << 24
_CPU_BYTES = 1 << 26
# Size and repetitions of the speed test: 17.6 TFLOP on a GPU, 0.1 s of an MI300X at a fifth of its peak.
_LOAD = {"cuda": (8192, 16), "cpu": (512, 2)}


def main(argv: Sequence[str]) -> int:
    """Print one JSON object on standard output; always return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("probe", "check"))
    parser.add_argument("--device", choices=tuple(_LOAD), default="cuda")
    parser.add_argument("--gpus", type=int, default=0, help="how many there must be")
    parser.add_argument("--share", type=float, default=0.5, help="share of a GPU's free memory to write and read")
    args = parser.parse_args(argv)
    torch = importlib.import_module(_TORCH)
    found = probe(torch)
    if args.verb == "check":
        found |= check(torch, args.device, args.gpus, args.share)
    print(json.dumps(found))
    return 0


def probe(torch: Any) -> dict[str, Any]:
    """Return versions and devices; architectures are for example gfx942 or sm_90."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "python": sys.executable,
        "torch": str(torch.__version__),
        "hip": str(getattr(torch.version, "hip", None) or ""),
        "cuda": str(torch.version.cuda or ""),
        "archs": [_architecture(torch, index) for index in range(count)],
    }


def check(torch: Any, device: str, gpus: int, share: float) -> dict[str, Any]:
    """Check each device; the CPU counts as one device, whatever `gpus` says."""
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cuda" and visible < max(1, gpus):
        return {"ok": False, "error": f"{visible} of {gpus} GPUs are visible to torch", "devices": []}
    names = [f"cuda:{index}" for index in range(visible)] if device == "cuda" else ["cpu"]
    factors_NN, reference_NN = _make_product(torch)
    devices = [_check_device(torch, name, factors_NN, reference_NN, share) for name in names]
    errors = [f"{checked['device']}: {checked['error']}" for checked in devices if checked["error"]]
    return {"ok": not errors, "error": "; ".join(errors), "devices": devices}


def _architecture(torch: Any, index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    gcn = str(getattr(properties, "gcnArchName", "")).split(":")[0]
    # In CUDA's torch gcnArchName is the card's name.
    return gcn if gcn.startswith("gfx") else f"sm_{properties.major}{properties.minor}"


def _make_product(torch: Any) -> tuple[Any, Any]:
    """Return a matrix that is exact in bf16, and its square in float64, both computed on the CPU, which is trusted."""
    generator = torch.Generator().manual_seed(0)
    factors_NN = torch.randn(MATMUL_SIZE, MATMUL_SIZE, generator=generator).to(torch.bfloat16)
    return factors_NN, factors_NN.double() @ factors_NN.double()


def _check_device(torch: Any, device: str, factors_NN: Any, reference_NN: Any, share: float) -> dict[str, Any]:
    checked: dict[str, Any] = {"device": device, "error": "", "tolerance": TOLERANCE}
    try:
        if device != "cpu":
            checked["name"] = str(torch.cuda.get_device_name(device))
        checked["matmul_error"] = _matmul_error(device, factors_NN, reference_NN)
        _require_close(checked["matmul_error"])
        checked["memory_gib"] = round(_check_memory(torch, device, share) / (1 << 30), 2)
        checked["tflops"] = round(_measure_load(torch, device) / 1e12, 2)
    except RuntimeError as err:
        # Includes torch's own errors: of the driver, an illegal access, out of memory.
        checked["error"] = " ".join(str(err).split())[:500]
    return checked


def _matmul_error(device: str, factors_NN: Any, reference_NN: Any) -> float:
    """Return the largest difference of an element, in standard deviations."""
    factors_NN = factors_NN.to(device)
    product_NN = (factors_NN @ factors_NN).cpu().double()
    return float((product_NN - reference_NN).abs().max().item()) / math.sqrt(MATMUL_SIZE)


def _require_close(error: float) -> None:
    # Negated, so that NaN is an error too.
    if not error <= TOLERANCE:
        raise RuntimeError(f"a bf16 product is off by {error:.3g}, more than {TOLERANCE:g}")


def _check_memory(torch: Any, device: str, share: float) -> int:
    """Fill a share of the free memory with different blocks, and read all of them back; return the number of bytes.

    Raises:
        RuntimeError: a block doesn't hold what was written.
    """
    on_cpu = device == "cpu"
    block_bytes = _CPU_BLOCK_BYTES if on_cpu else _BLOCK_BYTES
    free = _CPU_BYTES if on_cpu else torch.cuda.mem_get_info(device)[0]
    count = max(1, int(free * share) // block_bytes)
    blocks = [
        torch.full((block_bytes // 8,), _pattern(index), dtype=torch.int64, device=device) for index in range(count)
    ]
    for index, block in enumerate(blocks):
        if not int(block.min().item()) == int(block.max().item()) == _pattern(index):
            raise RuntimeError(f"memory block {index} of {count} doesn't hold what was written to it")
    return count * block_bytes


def _pattern(index: int) -> int:
    """Return a different number for each block, with about half of the bits set (Knuth's multiplier)."""
    return (index + 1) * 0x9E3779B97F4A7C15 % (1 << 62)


def _measure_load(torch: Any, device: str) -> float:
    """Multiply matrices for a moment, and return operations per second."""
    size, rounds = _LOAD["cpu" if device == "cpu" else "cuda"]
    left_MM = torch.ones(size, size, dtype=torch.bfloat16, device=device)
    out_MM = left_MM @ left_MM
    _synchronize(torch, device)
    began = time.perf_counter()
    for _ in range(rounds):
        out_MM = left_MM @ left_MM
    _synchronize(torch, device)
    took = time.perf_counter() - began
    if float(out_MM[0, 0].item()) != size:
        raise RuntimeError(f"a product of ones is {float(out_MM[0, 0].item()):g} instead of {size}")
    return 2 * size**3 * rounds / took


def _synchronize(torch: Any, device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
