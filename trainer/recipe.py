"""What a recipe is: frozen settings, and a function from them to a workload.

# trainer/recipes/NAME.py
def recipe() -> Recipe[MySettings]:
    return Recipe(settings=MySettings(epochs=12), build=build_workload)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

from trainer.config import Settings
from trainer.data import Batch, SampleSource

# Shape legend: B batch.
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its data, and what to minimise and to measure.

    `loss` returns the batch's mean, a scalar. `metrics` returns per-sample values by name, each (B,); one of them
    is called "loss". `best` is the metric that chooses the best weights, and `best_is` its direction.
    `export_inputs` are the model's inputs for ONNX with batch first, at least two samples; None where the model
    isn't to be exported. `flops_per_sample` are the operations of one sample's forward and backward pass, for the
    utilisation that is shown; None where they aren't known (`trainer.flops` counts them). `blocks` are the model's
    parts, in order, that gradient checkpointing computes again in the backward pass instead of keeping what is in
    them, and that a divided model gathers one by one. `data` is a line for the model card: what the data are, and
    whose.
    """

    model: nn.Module
    train_data: SampleSource
    validation_data: SampleSource
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    metrics: Callable[[nn.Module, Batch], Mapping[str, torch.Tensor]]
    best: str = "loss"
    best_is: Literal["min", "max"] = "min"
    export_inputs: Batch | None = None
    flops_per_sample: float | None = None
    blocks: Sequence[nn.Module] = ()
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Generic[S]):
    """The complete default configuration of a training, and how to make it real.

    `build` is called once settings are final and the random generators are seeded.
    """

    settings: S
    build: Callable[[S], Workload]
