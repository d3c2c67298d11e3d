"""Forecasts the memory of a step: traces real steps with fake tensors, which have shapes but no memory.

Every tensor counts from its creation to its end, as the step's own code holds it: weights, gradients, optimizer state,
activations, and what lives only briefly. A convolution's kernel is assumed to copy what it gets. Not in the figures:
other kernels' workspaces, gaps in the allocator's memory, and the device's own context (about half a GiB on a GPU).
"""

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.step.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """Bytes of one process.

    Attributes:
        weights: the model's, with its buffers; with an EMA both models'.
        gradients: after a backward pass.
        optimizer: the optimizer's state, after its first step.
        peaks: the most that a step has at once, all of the above included, by the batch's place in the request.
    """

    weights: int
    gradients: int
    optimizer: int
    peaks: Sequence[int]


def forecast_memory(
    model: nn.Module, make_learner: Callable[[], Learner], requests: Sequence[tuple[Batch, int, int]]
) -> MemoryForecast:
    """Trace one step for each request, on the CPU's kernels. The model's weights are replaced by fake ones.

    Values that the host reads are 0, because there are none.

    Args:
        model: the model that `make_learner` trains.
        make_learner: makes the learner, for a device of type cpu.
        requests: real batches of one process, each with its number of samples and its micro-batch.

    Raises:
        RuntimeError: the step can't be traced, for example because a tensor's shape depends on values.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    live = _LiveMemory()
    live.count(_replace_weights(model, fake))
    batches = [(tree_map_only(torch.Tensor, fake.from_tensor, batch), *sizes) for batch, *sizes in requests]
    with _quiet(), fake, live:
        learner = make_learner()
        learner.may_halve = False
        learner.model.train()
        peaks = []
        # The optimizer has its state from the second step on.
        for batch, samples, size in [batches[0], *batches]:
            learner.expect_share(samples, micro_batch=size)
            live.restart_peak()
            learner.step(batch, rate=1e-9, moment=Moment(step=0))
            peaks.append(live.peak + _bytes_of(tree_iter(batch)))
        return MemoryForecast(
            weights=_bytes_of(_tensors_of(learner.model, learner.evaluated)),
            gradients=_bytes_of(parameter.grad for parameter in learner.model.parameters()),
            optimizer=_bytes_of(tree_iter(list(learner.optimizer.state.values()))),
            peaks=peaks[1:],
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warning that a copied fake tensor has no address (torch.Tensor.__deepcopy__ asks for it)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor", category=UserWarning)
        yield


# Their kernels copy what they get into layouts of their own (oneDNN), or unfold a sample (im2col).
_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


class _LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """Counts the bytes of all storages that are in use, and their most since `restart_peak`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._bytes = 0
        self.peak = 0

    def count(self, tensors: Iterable[Any]) -> None:
        """Count the storages of tensors that aren't counted yet, until they end."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())

    def restart_peak(self) -> None:
        """Forget the peak so far."""
        self.peak = self._bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return _zero_of(args[0])
        result = func(*args, **(kwargs or {}))
        self.count(tree_iter(result))
        if func in _CONVOLUTIONS:
            at_output = result if isinstance(result, torch.Tensor) else args[0]
            self.peak = max(self.peak, self._bytes + _workspace(args, at_output))
        return result

    def _count(self, storage: Any) -> None:
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self._bytes += size
        self.peak = max(self.peak, self._bytes)
        weakref.finalize(storage, self._release, size)

    def _release(self, size: int) -> None:
        self._bytes -= size


def _workspace(args: Sequence[Any], at_output: torch.Tensor) -> int:
    """Estimate the bytes that a convolution's kernel needs: its arguments once more, or one sample unfolded.

    Args:
        args: of aten.convolution: (input, weight, ...), or of its backward pass: (gradient, input, weight, ...).
        at_output: the output or its gradient, (B, C, ...).
    """
    weight: torch.Tensor = args[2] if args[0] is at_output else args[1]
    positions = at_output[0, 0].numel()
    unfolded = weight[0].numel() * positions * weight.element_size()
    return max(_bytes_of(args), unfolded)


def _zero_of(tensor: torch.Tensor) -> float | bool:
    if tensor.dtype == torch.bool:
        return False
    return 0.0 if tensor.is_floating_point() else 0


def _replace_weights(model: nn.Module, fake: FakeTensorMode) -> list[torch.Tensor]:
    """Replace parameters and buffers by fake ones, shared ones by the same; return these."""
    known: dict[torch.Tensor, Any] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                new = nn.Parameter(fake.from_tensor(parameter.detach()), requires_grad=parameter.requires_grad)
                module._parameters[name] = known.setdefault(parameter, new)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = known.setdefault(buffer, fake.from_tensor(buffer))
    return list(known.values())


def _tensors_of(*models: nn.Module) -> list[torch.Tensor]:
    return [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]


def _bytes_of(values: Iterable[Any]) -> int:
    """Sum the bytes of tensors' storages, each once."""
    storages = [value.untyped_storage() for value in values if isinstance(value, torch.Tensor)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())
