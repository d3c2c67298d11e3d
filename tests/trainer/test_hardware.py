"""The devices' peaks, computed a second time from what the chips are made of."""

import pytest

from trainer.report.hardware import PEAK_TFLOPS, find_peak_tflops

# Multiprocessors (compute units, of one die), boost clock in MHz, and operations of dense 16-bit products per cycle of
# each: NVIDIA's architecture papers of Volta, Turing, Ampere (GA100, GA102), Ada, Hopper, Blackwell (GB202), and AMD's
# of CDNA 2, 3 and 4. GeForce cards, and the A10G and L40, have half the rate if sums are float32.
CHIPS = {
    "GH200": (132, 1830, 4096),
    "H200": (132, 1830, 4096),
    "H100 PCIe": (114, 1620, 4096),
    "H100": (132, 1830, 4096),
    "A100": (108, 1410, 2048),
    "A30": (56, 1440, 2048),
    "A40": (84, 1740, 1024),
    "A10G": (80, 1710, 512),
    "A10": (72, 1695, 1024),
    "L40S": (142, 2490, 1024),
    "L40": (142, 2490, 512),
    "L4": (58, 2040, 1024),
    "V100": (80, 1530, 1024),
    "T4": (40, 1590, 1024),
    "RTX 6000 Ada": (142, 2505, 1024),
    "RTX A6000": (84, 1800, 1024),
    "RTX 5090": (170, 2407, 512),
    "RTX 4090": (128, 2520, 512),
    "RTX 3090 Ti": (84, 1860, 512),
    "RTX 3090": (82, 1695, 512),
    "MI355X": (256, 2400, 4096),
    "MI350X": (256, 2200, 4096),
    "MI325X": (304, 2100, 2048),
    "MI300X": (304, 2100, 2048),
    "MI300A": (228, 2100, 2048),
    "MI250X": (110, 1700, 1024),
    "MI250": (104, 1700, 1024),
    "MI210": (104, 1700, 1024),
}
ONLY_ON_A_SHEET = {"GB300", "GB200", "B300", "B200", "H100 NVL", "V100 PCIE"}


@pytest.mark.parametrize("name", CHIPS)
def test_peak_is_units_times_clock_times_operations(name: str) -> None:
    """Within half a per cent: data sheets round."""
    units, megahertz, operations = CHIPS[name]
    assert PEAK_TFLOPS[name] == pytest.approx(units * megahertz * operations / 1e6, rel=0.005)


def test_every_other_peak_is_named_here() -> None:
    """A new figure comes with its chip, or is marked as one that only a sheet has."""
    assert set(PEAK_TFLOPS) == set(CHIPS) | ONLY_ON_A_SHEET


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA A10", 125.0),
        ("NVIDIA L40", 181.05),
        ("Tesla V100-PCIE-32GB", 112.0),
        ("NVIDIA GeForce RTX 3090 Ti", 80.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        ("AMD Instinct MI250X / MI250", 191.5),
    ],
)
def test_similar_names_have_their_own_peaks(name: str, tflops: float | None) -> None:
    """A laptop's card has another chip behind the same number."""
    assert find_peak_tflops(name) == tflops
