"""Device facts: name, peak TFLOPS, and peak memory use."""

import resource
import sys

import torch

# Peak of dense 16-bit matrix products (bf16 or fp16), in TFLOPS, for what torch calls one device. The figures are those
# of the makers' data sheets, half of the figure "with sparsity"; they were written from memory and not verified since,
# and `track.peak_tflops` overrides them. Longer names come first, because the first match counts.
PEAK_TFLOPS = {
    "H200": 989.4,  # NVIDIA H200: 1,979 with sparsity
    "H100 PCIe": 756.0,  # NVIDIA H100 PCIe: 1,513 with sparsity
    "H100 NVL": 835.0,  # NVIDIA H100 NVL: 1,671 with sparsity
    "H100": 989.4,  # NVIDIA H100 SXM5: 1,979 with sparsity
    "A100": 312.0,  # NVIDIA A100
    "A10G": 70.0,  # NVIDIA A10G: 140 with sparsity
    "L40S": 362.05,  # NVIDIA L40S: 733 with sparsity, rounded; 362.05 without is on the same sheet
    "L4": 121.0,  # NVIDIA L4: 242 with sparsity
    "V100": 125.0,  # NVIDIA V100 SXM2, fp16
    "T4": 65.0,  # NVIDIA T4, fp16
    "RTX 6000 Ada": 364.2,  # NVIDIA Ada architecture paper: 728.5 with sparsity
    "MI355X": 2516.6,  # AMD Instinct MI355X: 2.5 PFLOPS
    "MI350X": 2306.9,  # AMD Instinct MI350X: 2.3 PFLOPS
    "MI325X": 1307.4,  # AMD Instinct MI325X
    "MI300X": 1307.4,  # AMD Instinct MI300X
    "MI250X": 191.5,  # AMD Instinct MI250X: 383 for its two dies, each a device
}
_GIB = 1024**3


def device_name(device: torch.device) -> str:
    """Return a device's name from its driver; `cpu` for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def find_peak_tflops(name: str) -> float | None:
    """Look up a device's peak of 16-bit matrix products by its name; None if unknown, as for a CPU."""
    words = name.replace("-", " ").split()
    for model, tflops in PEAK_TFLOPS.items():
        if all(word in words for word in model.split()):
            return tflops
    return None


def peak_memory_gib(device: torch.device) -> float:
    """Return this process's peak memory use in GiB: the device's on a GPU, else main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / _GIB
    # In KiB on Linux, in bytes on macOS (getrusage(2)).
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB
