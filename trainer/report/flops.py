"""Counts a training step's floating-point operations, for the MFU in metrics.jsonl, without computing anything."""

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

# Shape legend: B batch.
# The backward pass takes twice as many as the forward pass: one product each for the gradients of inputs and of
# weights (Chowdhery et al., PaLM, 2022, appendix B).
PASSES = 3


def training_flops_per_sample(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """Count the operations of one sample's forward and backward pass: matrix products and convolutions only.

    The model is copied to the meta device: its weights, statistics and random generators don't change.

    Args:
        model: maps `inputs` to its output.
        inputs: example inputs, batch first.
    """
    shadow = copy.deepcopy(model).to("meta").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(*(tensor.to("meta") for tensor in inputs))
    return float(PASSES * counter.get_total_flops() / len(inputs[0]))


def utilisation(*, flops_per_sample: float, samples_per_second: float, peak_tflops: float, devices: int) -> float:
    """Compute the model FLOPs utilisation (MFU): the model's operations per second as a share of the devices' peak."""
    return flops_per_sample * samples_per_second / (peak_tflops * 1e12 * devices)
