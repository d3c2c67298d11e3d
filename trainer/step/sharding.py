"""Shards weights, gradients and optimizer state over the processes, for models that don't fit on one device.

Uses PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard): each process holds its rows of every tensor, all-gathers a
block's weights while it computes with them, and gets the mean gradient of its own rows by reduce-scatter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard as ByRows
from torch.nn.modules.batchnorm import _BatchNorm

from trainer.base.config import ComputeSettings
from trainer.base.errors import CheckpointMismatchError
from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.tree import Slice, State
from trainer.group.distributed import ProcessGroup


class Sharding:
    """Shards tensors over one process group."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._mesh = init_device_mesh(group.device.type, (group.size,))

    @property
    def processes(self) -> int:
        """The number of processes that tensors are sharded over."""
        return self._group.size

    def take_weights(self, model: nn.Module) -> list[torch.Tensor]:
        """Move a model's parameters to the meta device, before it is copied and sharded; collective.

        Buffers aren't sharded: each becomes the main process's, on this process's device.

        Returns:
            On the main process the parameters' values, in the model's order; on the others none.
        """
        weights = [parameter.detach() for parameter in model.parameters()] if self._group.is_main else []
        new: dict[torch.Tensor, torch.Tensor] = {}
        for parameter in model.parameters():
            # Contiguous, as FSDP needs it.
            values = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
            new[parameter] = nn.Parameter(values, requires_grad=parameter.requires_grad)
        for buffer in model.buffers():
            new[buffer] = _place(buffer, self._group.device)
        _replace_tensors(model, new)
        self._group.broadcast_buffers(model)
        return weights

    @torch.no_grad()
    def scatter_weights(self, weights: list[torch.Tensor], model: nn.Module) -> None:
        """Give each process its rows of the main process's weights, one tensor after another; collective.

        Args:
            weights: what `take_weights` returned; each is removed when it is sent.
            model: sharded since.
        """
        weights.reverse()
        size, device = self._group.size, self._group.device
        for parameter, rows in zip(model.parameters(), self.local_tensors(list(model.parameters())), strict=True):
            most = len(chunk_rows(len(parameter), 0, size))
            received = rows.new_empty((most, *rows.shape[1:]), device=device)
            parts: Sequence[torch.Tensor] = []
            if self._group.is_main:
                whole = received.new_zeros((most * size, *rows.shape[1:]))
                whole[: len(parameter)] = weights.pop()
                parts = torch.split(whole, most) if most else [whole]
            self._group.scatter_from_main(parts, received)
            rows.copy_(received[: len(rows)])

    @torch.no_grad()
    def copy_weights(self, model: nn.Module, copied: nn.Module) -> None:
        """Copy the weights of one sharded model into another one."""
        sources, targets = (self.local_tensors(list(each.parameters())) for each in (model, copied))
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)

    def shard_model(
        self,
        through: nn.Module,
        blocks: Iterable[nn.Module] = (),
        *,
        settings: ComputeSettings,
        is_trained: bool = True,
    ) -> None:
        """Shard a model in place, block by block; its parameters become this process's rows.

        The rows of parameters on the meta device are made, without values. A block that shares a parameter with another
        part of the model is sharded with the rest, because FSDP would make two parameters of it.

        A model that isn't trained reshards after each forward pass: there is no backward pass to do so, and the next
        forward pass would use the old weights.

        Args:
            through: the module around the model (`trainer.group.through.Through`): what it calls finds all weights that
                are in no block.
            blocks: parts of the model whose weights are all-gathered only while their forward or backward pass runs.
            settings: mixed precision and offloading.
            is_trained: whether there will be backward passes.
        """
        parts = _list_separate(blocks, through)
        in_parts = {module for part in parts for module in part.modules()}
        rest = [module for module in through.modules() if module not in in_parts]
        options: dict[str, Any] = {"mesh": self._mesh}
        if not is_trained:  # torch before 2.8 refuses None for its own choice
            options["reshard_after_forward"] = True
        if settings.cpu_offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self._group.device.type == "cuda")
        for part in parts:
            fully_shard(part, mp_policy=_precision_of(part.modules(), settings, casts_inputs=True), **options)
        # The batch must not be cast: a loss compares with targets in full precision.
        fully_shard(through, mp_policy=_precision_of(rest, settings, casts_inputs=False), **options)
        device = torch.device("cpu") if settings.cpu_offload else self._group.device
        # What `to_empty` does, which would empty the buffers, too.
        through._apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor
        )

    def local_state(self, value: Any) -> Any:
        """Replace the sharded tensors in a state by this process's rows."""
        if isinstance(value, DTensor):
            local = value.to_local()
            rows = chunk_rows(len(value), self._group.rank, self._group.size)
            return Slice(tensor=local.detach(), begin=rows.start, total=len(value))
        if isinstance(value, dict):
            return {key: self.local_state(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.local_state(item) for item in value)
        return value

    def shard_like(self, value: Any, like: torch.Tensor) -> Any:
        """Shard a checkpoint's tensor, whole or already a slice, like `like`; return other values unchanged.

        Raises:
            CheckpointMismatchError: the rows are not this process's.
        """
        if not isinstance(like, DTensor) or not (isinstance(value, Slice) or _has_shape(value, like)):
            return value
        rows = chunk_rows(len(like), self._group.rank, self._group.size)
        local = value.tensor if isinstance(value, Slice) else value[rows.start : rows.stop].clone()
        if local.shape != (len(rows), *like.shape[1:]):
            raise CheckpointMismatchError(
                "the weights don't fit this model",
                why=f"rows of shape {tuple(local.shape)} for a tensor of shape {tuple(like.shape)}",
                fix="use the settings that they were trained with, or another checkpoint",
            )
        return DTensor.from_local(
            local.contiguous().to(like.device),
            self._mesh,
            [ByRows(0)],
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )

    def shard_optimizer_state(self, state: State, optimizer: torch.optim.Optimizer) -> State:
        """Shard an optimizer's state from a checkpoint like its parameters."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        sharded = {
            number: {name: self.shard_like(value, parameters[number]) for name, value in values.items()}
            for number, values in state["state"].items()
        }
        return {**state, "state": sharded}

    def all_gather(self, value: torch.Tensor) -> torch.Tensor:
        """All-gather a tensor if it is sharded; collective."""
        return value.full_tensor() if isinstance(value, DTensor) else value

    def local_tensors(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return this process's rows, without a copy."""
        return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _place(buffer: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a buffer on the device; without values if it is on the meta device."""
    if buffer.is_meta:
        return torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
    return buffer.detach().to(device).contiguous()


def _replace_tensors(model: nn.Module, new: Mapping[torch.Tensor, torch.Tensor]) -> None:
    """Replace parameters and buffers everywhere in a model, also where a plain attribute is one of them."""
    for module in model.modules():
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            if value is not None and value in new:
                setattr(module, name, new[value])  # recurrent layers note their weights there
        for name, value in [*vars(module).items()]:
            if isinstance(value, torch.Tensor) and value in new:
                vars(module)[name] = new[value]  # setattr would register it under this name, too


def _list_separate(blocks: Iterable[nn.Module], through: nn.Module) -> list[nn.Module]:
    """List the blocks that have parameters, and share none with another part of the model."""
    blocks = list(blocks)
    in_blocks = {module for block in blocks for module in block.modules()}
    rest = [module for module in through.modules() if module not in in_blocks]
    users = Counter(parameter for block in blocks for parameter in {*block.parameters()})
    users.update({parameter for module in rest for parameter in module.parameters(recurse=False)})
    return [
        block
        for block in blocks
        if (parameters := [*block.parameters()]) and all(users[parameter] == 1 for parameter in parameters)
    ]


def _precision_of(
    modules: Iterable[nn.Module], settings: ComputeSettings, *, casts_inputs: bool
) -> MixedPrecisionPolicy:
    """Choose the precision in which weights are all-gathered; gradients are averaged in float32.

    Batch normalisation needs weights in the precision of its running statistics: parts with it gather float32, which
    autocast then casts where that's right.
    """
    if settings.amp != "bf16" or any(isinstance(module, _BatchNorm) for module in modules):
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=casts_inputs
    )


def _has_shape(value: Any, like: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == like.shape
