"""How much of the device's peak a run uses, and how long it waits for data."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer import harness
from trainer.report.flops import training_flops_per_sample, utilisation
from trainer.report.hardware import find_peak_tflops
from trainer.report.stopwatch import Stopwatch

ONE_EPOCH = ("epochs=1", "batch_size=64", "model.width=6", "curves=false", "onnx=false")


# Figures


def test_flops_of_an_mlp_are_three_times_its_forward_products() -> None:
    """2 x in x out for each layer forward, twice that backward; the model and the generators don't change."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.5), nn.ReLU(), nn.Linear(128, 10))
    state = torch.get_rng_state()
    assert training_flops_per_sample(model, (torch.zeros(4, 64),)) == 3 * 2 * (64 * 128 + 128 * 10)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_utilisation_is_the_share_of_the_devices_peak() -> None:
    """1 GFLOP a sample at 1,000 samples/s on two devices of 5 TFLOPS is a tenth."""
    assert utilisation(flops_per_sample=1e9, samples_per_second=1000, peak_tflops=5, devices=2) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.4),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("Tesla T4", 65.0),
        ("Tesla V100-SXM2-16GB", 125.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L4", 121.0),
        ("AMD Instinct MI300X", 1307.4),
        ("AMD Instinct MI300X VF", 1307.4),
        ("AMD Radeon RX 7800 XT", None),
        ("cpu", None),
    ],
)
def test_peak_is_found_by_the_drivers_name(name: str, tflops: float | None) -> None:
    """Whole words count: an L4 is no L40S; devices that aren't in the table have no peak."""
    assert find_peak_tflops(name) == tflops


def test_mfu_is_shown_where_the_peak_is_known(tmp_path: Path) -> None:
    """With `track.peak_tflops` every train row has it: operations of the layers, counted by hand, over the peak."""
    assert harness.call(tmp_path / "output", *ONE_EPOCH, "track.peak_tflops=0.1") == 0
    train = [row for row in harness.read_rows(tmp_path / "output") if "loss" in row]
    assert train
    width, large, small = 6, 8 * 8, 4 * 4  # channels of the first stage; pixels before and after the stride
    products = {
        "stem": 9 * width * large,
        "block 1": 2 * 9 * width * width * large,
        "block 2": (9 * width * 2 * width + 9 * (2 * width) ** 2 + width * 2 * width) * small,
        "block 3": 2 * 9 * (2 * width) ** 2 * small,
        "classifier": 2 * width * 10,
    }
    operations = 3 * 2 * sum(products.values())
    for row in train:
        assert row["mfu"] == pytest.approx(operations * row["samples_per_second"] / 0.1e12, 1e-3)


def test_data_wait_is_the_share_of_time_spent_waiting_for_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that sleeps and a step that doesn't: nearly 1; the other way round: nearly 0."""
    now = [0.0]

    def pass_time() -> None:
        now[0] += 0.02

    def slow() -> Iterator[int]:
        for number in range(3):
            pass_time()
            yield number

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    stopwatch = Stopwatch()
    for _ in stopwatch.waiting(slow()):
        stopwatch.count()
    assert stopwatch.data_wait() > 0.9
    stopwatch.restart()
    for _ in stopwatch.waiting(range(3)):
        pass_time()
    assert stopwatch.data_wait() < 0.1
