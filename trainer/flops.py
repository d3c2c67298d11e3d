"""How many operations a training step takes, for the utilisation that metrics.jsonl shows. Nothing is computed."""

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from trainer.data import Batch

# Shape legend: B batch.
# Forward, and twice as much backward: the gradients of inputs and of weights take one product each
# (Chowdhery et al., PaLM, 2022, appendix B).
PASSES = 3


def training_flops_per_sample(model: nn.Module, inputs: Batch) -> float:
    """Count the floating-point operations of one sample's forward and backward pass, products and convolutions only.

    The model is copied to the meta device: its weights, statistics and random generators stay as they are.

    Args:
        model: maps `inputs` to its output.
        inputs: example inputs, batch first.
    """
    shadow = copy.deepcopy(model).to("meta").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(*(tensor.to("meta") for tensor in inputs))
    return float(PASSES * counter.get_total_flops() / len(inputs[0]))


def utilisation(*, flops_per_sample: float, samples_per_second: float, peak_tflops: float, devices: int) -> float:
    """Compute the model FLOPs utilisation (MFU): the share of the devices' peak that the model's own products are."""
    return flops_per_sample * samples_per_second / (peak_tflops * 1e12 * devices)
