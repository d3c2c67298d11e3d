"""What a recipe is: frozen settings, and a function from them to a workload.

def recipe() -> Recipe[MySettings]:
    return Recipe(settings=MySettings(epochs=12), build=build_workload)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import nn

from trainer.base.config import Settings
from trainer.base.sources import Batch, Sample, SampleSource, StreamSource

# Shape legend: B batch.
_WITH_MOMENT = 3
S = TypeVar("S", bound=Settings)
Loss = Callable[[nn.Module, Batch], torch.Tensor] | Callable[[nn.Module, Batch, "Moment"], torch.Tensor]
Metrics = Callable[[nn.Module, Batch], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where a training is: `step` and `epoch` count from 0, `fraction` is the share of all steps that are done."""

    step: int
    epoch: int = 0
    fraction: float = 0.0


class SetMetric(Protocol):
    """A metric of the whole validation set that is no mean over samples: IoU, AUC, Chamfer.

    Every process updates its own; the states of all processes are merged by rank, so that the result doesn't depend
    on how the samples were shared.
    """

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Add one batch, whose padding is already cut off."""
        ...

    def state(self) -> Any:
        """Return what was added so far, as plain data or tensors on the CPU."""
        ...

    def merge(self, states: Sequence[Any]) -> float | Mapping[str, float]:
        """Compute the metric, or several by name, from the states of all processes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions of a recipe that the loop calls, on every process. They may change the model, never the weights' names.

    `on_step` is called after each optimizer step with (model, moment), `on_epoch` after each epoch, `on_end` once when
    the last step is done and validated.

    `state` returns what the hooks have to remember, as plain data and tensors, for each checkpoint; the main process's
    is saved. `load_state` gets it back in a run that resumes or goes on from a checkpoint, its tensors on the CPU.
    """

    on_step: Callable[[nn.Module, Moment], None] | None = None
    on_epoch: Callable[[nn.Module, Moment], None] | None = None
    on_end: Callable[[nn.Module, Moment], None] | None = None
    state: Callable[[], Any] | None = None
    load_state: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its data, its loss and its metrics. Only the first four are needed.

    Training:
        model: an nn.Module; or, where it is too big for each process's main memory (`compute.fully_shard`), a function
            without arguments that makes one. Then only the main process makes weights, and sends each process its rows.
            The others call the function on torch's meta device, whose tensors have shapes but no values.
        loss: returns the batch's mean, a scalar; it may take the `Moment` as a third argument. Anything of the model
            may be called, not only its forward.
        weight: how much a batch's mean counts, for example its number of tokens that aren't padding; None: its number
            of samples. Gradients of micro-batches and of processes are averaged with these weights; the weight of a
            batch is the sum over its micro-batches. Where the weight is 0 the loss counts as 0, even if it is NaN; its
            gradient has to be finite then: divide a masked sum by its number clamped to 1, or use torch's mean losses
            with ignore_index.
        collate: makes a batch of a list of samples; None stacks their tensors (`trainer.data.batch.stack_samples`).
        parameter_groups: the optimizer's groups, as torch's optimizers take them; a group's `lr_scale` multiplies the
            rate. None: two groups, with and without weight decay, as the settings say.
        make_optimizer: makes the optimizer of these groups, instead of the one in the settings.
        make_schedule: returns the rate of a step as a share of the peak, instead of the shape in the settings.
        blocks: the model's parts, in order, or a function of the model that returns them: gradient checkpointing
            recomputes each of them in the backward pass, FSDP shards and torch.compile compiles each of them separately
            where they have to.
        hooks: functions that the loop calls.

    Validation:
        metrics: per-sample values by name, each (B,).
        set_metrics: metrics of the whole set, by name; the functions make a new, empty one for each validation.
        evaluate: computes anything from the model and all validation batches of this process; its results are averaged
            over the processes, weighted with their number of samples.
        best, best_is: the metric that selects the best weights, and its better direction.
        samples: makes what is worth looking at, by file name: see `trainer.report.samples`.

    Export and report:
        export_inputs: example inputs for the ONNX export, batch first, at least two samples; None: no export.
        export_names: of the exported model's inputs and of its outputs; None: `input`, `output`, numbered if there are
            several.
        flops_per_sample: operations of one sample's forward and backward pass, for MFU; None: counted.
        trainable_only: save and export only weights that are trained (LoRA). The others are as the recipe builds them.
        exports: makes what model.safetensors holds of the model with the weights to export; None: these weights.
        data: a line for the model card: what the data are, and who made them.
    """

    model: nn.Module | Callable[[], nn.Module]
    train_data: SampleSource | StreamSource
    validation_data: SampleSource
    loss: Loss
    weight: Callable[[Batch], float | torch.Tensor] | None = None
    collate: Callable[[list[Sample]], Batch] | None = None
    parameter_groups: Callable[[nn.Module], Sequence[Mapping[str, Any]]] | None = None
    make_optimizer: Callable[[Sequence[Mapping[str, Any]]], torch.optim.Optimizer] | None = None
    make_schedule: Callable[[int], Callable[[int], float]] | None = None
    blocks: Sequence[nn.Module] | Callable[[nn.Module], Sequence[nn.Module]] = ()
    hooks: Hooks = field(default_factory=Hooks)
    metrics: Metrics | None = None
    set_metrics: Mapping[str, Callable[[], SetMetric]] = field(default_factory=dict)
    evaluate: Callable[[nn.Module, Iterator[Batch]], Mapping[str, float]] | None = None
    best: str = "loss"
    best_is: Literal["min", "max"] = "min"
    samples: Callable[[nn.Module, Moment], Mapping[str, Any]] | None = None
    export_inputs: tuple[torch.Tensor, ...] | None = None
    export_names: tuple[Sequence[str], Sequence[str]] | None = None
    flops_per_sample: float | None = None
    trainable_only: bool = False
    exports: Callable[[nn.Module], Mapping[str, torch.Tensor]] | None = None
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltWorkload(Workload):
    """A workload whose model and blocks are made (`trainer.step.build.build_workload`)."""

    model: nn.Module
    blocks: Sequence[nn.Module] = ()


def bind_loss(loss: Loss) -> Callable[[nn.Module, Batch, Moment], torch.Tensor]:
    """Return the loss as a function of three arguments, whether it takes the moment or not."""
    if len(signature(loss).parameters) >= _WITH_MOMENT:
        return loss  # type: ignore[return-value]  # seen above
    return lambda model, batch, _moment: loss(model, batch)  # type: ignore[call-arg]  # seen above


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Generic[S]):
    """The default settings of a training, and the function that builds its workload.

    `build` is called when the settings are final and the random generators are seeded. The rest is filled in when the
    recipe is loaded: the first line of its docstring, and its settings before the user's changes.
    """

    settings: S
    build: Callable[[S], Workload]
    description: str = ""
    defaults: S | None = None
