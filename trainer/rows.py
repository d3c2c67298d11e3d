"""What a train row of metrics.jsonl says, and the plain line or the bar that shows it."""

from dataclasses import dataclass

import torch

from trainer.config import TrackSettings
from trainer.flops import training_flops_per_sample, utilisation
from trainer.hardware import device_name, find_peak_tflops, peak_memory_gib
from trainer.recipe import Workload
from trainer.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What turns a stopwatch into figures. `flops_per_sample` is None where no utilisation can be told."""

    device: torch.device
    devices: int
    batch_size: int
    flops_per_sample: float | None
    peak_tflops: float

    def read(self, stopwatch: Stopwatch) -> dict[str, float]:
        """Tell how fast the steps since the stopwatch's restart were, and what they took."""
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
    workload: Workload, settings: TrackSettings, device: torch.device, *, batch_size: int, devices: int
) -> Meter:
    """Make the meter of a run; its operations are only counted where the device's peak is known."""
    peak = settings.peak_tflops or find_peak_tflops(device_name(device)) or 0.0
    return Meter(
        device=device,
        devices=devices,
        batch_size=batch_size,
        flops_per_sample=_flops_per_sample(workload) if peak else None,
        peak_tflops=peak,
    )


def _flops_per_sample(workload: Workload) -> float | None:
    if workload.flops_per_sample is not None:
        return workload.flops_per_sample
    if workload.export_inputs is None:
        return None
    return training_flops_per_sample(workload.model, workload.export_inputs)
