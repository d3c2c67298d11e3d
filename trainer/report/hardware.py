"""Device facts: name, peak TFLOPS, and peak memory use."""

import resource
import sys

import torch

# Peak of dense 16-bit matrix products (bf16, or fp16 where a device has no bf16) that accumulate in float32, as torch
# computes them, in TFLOPS, for what torch calls one device. `track.peak_tflops` overrides them.
# Sources: the makers' data sheets, half of a figure "with sparsity"; each figure but those marked with * is also
# multiprocessors x boost clock x operations per cycle, which tests/trainer/test_hardware.py computes. The same figures
# are in torchtitan (tools/utils.py) and Lightning (fabric/utilities/throughput.py), except for Lightning's A10G, which
# is the A10's. Longer names come first, because the first match counts.
PEAK_TFLOPS = {
    "GB300": 2500.0,  # * NVIDIA GB300: as GB200, at 16 bits
    "GB200": 2500.0,  # * NVIDIA Blackwell technical brief: 5,000 with sparsity, at 1,200 W
    "B300": 2250.0,  # * NVIDIA B300: as B200, at 16 bits
    "B200": 2250.0,  # * NVIDIA Blackwell data sheet: 4,500 with sparsity
    "GH200": 989.4,  # NVIDIA GH200: an H100 with more memory
    "H200": 989.4,  # NVIDIA H200: 1,979 with sparsity
    "H100 PCIe": 756.0,  # NVIDIA H100 PCIe: 1,513 with sparsity
    "H100 NVL": 835.0,  # * NVIDIA H100 NVL: 1,671 with sparsity
    "H100": 989.4,  # NVIDIA H100 SXM5: 1,979 with sparsity
    "A100": 312.0,  # NVIDIA A100
    "A30": 165.0,  # NVIDIA A30
    "A40": 149.7,  # NVIDIA A40: 299.4 with sparsity
    "A10G": 70.0,  # NVIDIA A10G: 140 with sparsity
    "A10": 125.0,  # NVIDIA A10: 250 with sparsity
    "L40S": 362.05,  # NVIDIA L40S: 733 with sparsity, rounded; 362.05 without is on the same sheet
    "L40": 181.05,  # NVIDIA L40: 362.1 with sparsity
    "L4": 121.0,  # NVIDIA L4: 242 with sparsity
    "V100 PCIE": 112.0,  # * NVIDIA V100 PCIe, fp16
    "V100": 125.0,  # NVIDIA V100 SXM2, fp16
    "T4": 65.0,  # NVIDIA T4, fp16
    "RTX 6000 Ada": 364.2,  # NVIDIA Ada architecture paper: 728.5 with sparsity
    "RTX A6000": 154.8,  # NVIDIA RTX A6000: 309.7 with sparsity
    "RTX 5090": 209.5,  # NVIDIA GeForce RTX 5090: twice as much only if sums are fp16
    "RTX 4090": 165.2,  # NVIDIA GeForce RTX 4090: 330.3 with sparsity
    "RTX 3090 Ti": 80.0,  # NVIDIA GeForce RTX 3090 Ti
    "RTX 3090": 71.2,  # NVIDIA GeForce RTX 3090: 142 with sparsity
    "MI355X": 2516.6,  # AMD Instinct MI355X: 2.5 PFLOPS
    "MI350X": 2306.9,  # AMD Instinct MI350X: 2.3 PFLOPS
    "MI325X": 1307.4,  # AMD Instinct MI325X
    "MI300X": 1307.4,  # AMD Instinct MI300X
    "MI300A": 980.6,  # AMD Instinct MI300A
    "MI250X": 191.5,  # AMD Instinct MI250X: 383 for its two dies, each a device
    "MI250": 181.0,  # AMD Instinct MI250: 362.1 for its two dies, each a device
    "MI210": 181.0,  # AMD Instinct MI210
}
# In the name of a laptop's or a slower variant's card, which has another chip or clock behind the same number.
_OTHER_CARDS = frozenset({"Laptop", "D", "Max"})
_GIB = 1024**3


def device_name(device: torch.device) -> str:
    """Return a device's name from its driver; `cpu` for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def find_peak_tflops(name: str) -> float | None:
    """Look up a device's peak of 16-bit matrix products by its name; None if unknown, as for a CPU."""
    words = name.replace("-", " ").split()
    if _OTHER_CARDS.intersection(words):
        return None
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
