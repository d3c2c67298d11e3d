"""Weights, gradients and optimizer state divided over the processes, for models that don't fit on one device.

PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard): each process holds its rows of every tensor, gathers a block's
weights for as long as it computes with them, and gets the mean gradient of its own rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard as ByRows

from trainer.checkpoints.shards import chunk_rows
from trainer.checkpoints.tree import Slice, State
from trainer.distributed import World
from trainer.errors import CheckpointMismatchError


class Sharding:
    """How one world divides tensors."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._mesh = init_device_mesh(world.device.type, (world.size,))

    @property
    def processes(self) -> int:
        """Over how many processes tensors are divided."""
        return self._world.size

    def divide(self, model: nn.Module, blocks: Iterable[nn.Module] = (), *, is_trained: bool = True) -> None:
        """Divide a model in place, each block gathered by itself; its parameters become this process's rows of them.

        A model that is only evaluated gives back what it gathered after each forward pass: no backward pass does it
        for it, and the next one would compute with old weights.
        """
        parts = [block for block in blocks if any(True for _ in block.parameters())]
        for part in (*parts, model):
            fully_shard(part, mesh=self._mesh, reshard_after_forward=None if is_trained else True)

    def slice_state(self, value: Any) -> Any:
        """Replace what is divided in a state by the rows that are here."""
        if isinstance(value, DTensor):
            local = value.to_local()
            rows = chunk_rows(len(value), self._world.rank, self._world.size)
            return Slice(tensor=local.detach(), begin=rows.start, total=len(value))
        if isinstance(value, dict):
            return {key: self.slice_state(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.slice_state(item) for item in value)
        return value

    def divide_like(self, value: Any, like: torch.Tensor) -> Any:
        """Make what a checkpoint has of a tensor, whole or in rows, into what is divided as `like` is; else keep it.

        Raises:
            CheckpointMismatchError: the rows are not those of this process.
        """
        if not isinstance(like, DTensor) or not (isinstance(value, Slice) or _has_shape(value, like)):
            return value
        rows = chunk_rows(len(like), self._world.rank, self._world.size)
        local = value.tensor if isinstance(value, Slice) else value[rows.start : rows.stop].clone()
        if local.shape != (len(rows), *like.shape[1:]):
            raise CheckpointMismatchError(
                "the weights are not this model's",
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

    def divide_optimizer(self, state: State, optimizer: torch.optim.Optimizer) -> State:
        """Divide an optimizer's state from a checkpoint as its parameters are."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        divided = {
            number: {name: self.divide_like(value, parameters[number]) for name, value in values.items()}
            for number, values in state["state"].items()
        }
        return {**state, "state": divided}

    def gather_whole(self, value: torch.Tensor) -> torch.Tensor:
        """Gather a tensor that is divided; collective."""
        return value.full_tensor() if isinstance(value, DTensor) else value

    def local_rows(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Take the rows that are here, in the memory where they are."""
        return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _has_shape(value: Any, like: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == like.shape
