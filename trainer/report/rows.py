"""Measures the performance figures of a train row in metrics.jsonl: throughput, data wait, memory, MFU."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.base.config import TrackSettings
from trainer.base.errors import first_line
from trainer.base.recipe import BuiltWorkload
from trainer.report.flops import training_flops_per_sample, utilisation
from trainer.report.hardware import device_name, find_peak_tflops, peak_memory_gib
from trainer.report.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Turns a stopwatch's times into figures. `flops_per_sample` is None if the MFU can't be computed."""

    device: torch.device
    devices: int
    batch_size: int
    flops_per_sample: float | None
    peak_tflops: float

    def read(self, stopwatch: Stopwatch) -> dict[str, float]:
        """Return throughput, data wait, memory and MFU since the stopwatch's restart."""
        rate = stopwatch.samples_per_second(self.batch_size)
        figures = {
            "samples_per_second": rate,
            "data_wait": stopwatch.data_wait(),
            "memory_gib": peak_memory_gib(self.device),
        }
        if self.flops_per_sample is not None:
            figures["mfu"] = utilisation(
                flops_per_sample=self.flops_per_sample,
                samples_per_second=rate,
                peak_tflops=self.peak_tflops,
                devices=self.devices,
            )
        return figures


def make_meter(
    workload: BuiltWorkload,
    settings: TrackSettings,
    device: torch.device,
    *,
    batch_size: int,
    devices: int,
    say: Callable[[str], None],
) -> Meter:
    """Make a run's meter, before the learner changes the model; it counts operations only if the peak is known."""
    peak = settings.peak_tflops or find_peak_tflops(device_name(device)) or 0.0
    return Meter(
        device=device,
        devices=devices,
        batch_size=batch_size,
        flops_per_sample=_flops_per_sample(workload, say) if peak else None,
        peak_tflops=peak,
    )


def _flops_per_sample(workload: BuiltWorkload, say: Callable[[str], None]) -> float | None:
    if workload.flops_per_sample is not None:
        return workload.flops_per_sample
    if workload.export_inputs is None:
        return None
    try:
        return training_flops_per_sample(workload.model, workload.export_inputs)
    except Exception as err:  # noqa: BLE001 - a model may do anything, and a figure is no reason to end a run
        say(f"no MFU, because the model's operations can't be counted: {first_line(err)}")
        return None
