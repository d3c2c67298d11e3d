"""The process group of torch.distributed, as one of its processes uses it; a single process is a group of one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from trainer.base.config import ComputeSettings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, TrainerError
from trainer.group.rendezvous import open_group_store

T = TypeVar("T")
# The name since torch 2.13, else the older one.
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(DistributedDataParallel.__init__).parameters
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """This process and its peers. Every method except `wrap` is collective: all ranks call them in the same order."""

    rank: int
    size: int
    device: torch.device
    store: Store | None = None
    """The key-value store of the rendezvous, for messages outside of collectives; None if torch has no such group."""

    @property
    def is_open(self) -> bool:
        """Whether torch.distributed has this group; of one process only if the caller has opened it."""
        return self.size > 1 or self.store is not None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that prints and writes files."""
        return self.rank == 0

    def wrap(self, through: nn.Module, settings: ComputeSettings) -> nn.Module:
        """Wrap a module (`trainer.group.through.Through`) so that gradients are averaged over the processes.

        The forward pass has no collectives, so that one process may repeat it alone. Running statistics stay local
        until `broadcast_buffers` sends the main process's ones before each validation.
        """
        if self.size == 1:
            return through
        options: dict[str, Any] = {
            _SYNC_BUFFERS: False,
            "device_ids": [self.device] if self.device.type == "cuda" else None,
            # Else every gradient is in memory twice after each step; with accumulation it still is during one.
            "gradient_as_bucket_view": True,
            "static_graph": settings.static_graph,
            "find_unused_parameters": settings.find_unused_parameters,
        }
        return DistributedDataParallel(through, **options)

    def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over the processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values, op=dist.ReduceOp.SUM)
        return values

    def all_reduce_sums(self, values: Sequence[float]) -> list[float]:
        """Sum numbers over the processes, element by element, on the CPU, without a device sync."""
        if self.size == 1:
            return list(values)
        return [float(value) for value in self.all_reduce_sum(torch.tensor(values, dtype=torch.float64)).tolist()]

    def all_reduce_max(self, values: Sequence[int]) -> list[int]:
        """Take the element-wise maximum over the processes, on the CPU, without a device sync."""
        if self.size == 1:
            return list(values)
        agreed = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return [int(value) for value in agreed.tolist()]

    def all_gather(self, value: T) -> list[T]:
        """Collect one value from every process, by rank."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast_from_main(self, make: Callable[[], T]) -> T:
        """Call a function on the main process and broadcast its result.

        Raises:
            TrainerError: the function raised it on the main process; every process raises it.
        """
        return self.broadcast_from(0, make)

    def broadcast_from(self, rank: int, make: Callable[[], T]) -> T:
        """Call a function on one process and broadcast its result.

        Raises:
            TrainerError: the function raised it there; every process raises it.
        """
        outcome = _attempt(make) if self.rank == rank else None
        if self.size > 1:
            box = [outcome]
            dist.broadcast_object_list(box, src=rank)
            outcome = box[0]
        if isinstance(outcome, TrainerError):
            raise outcome
        return outcome  # type: ignore[return-value]  # the other process's result of make()

    def call_on_every_rank(self, make: Callable[[], T]) -> T:
        """Call a function on every process and return this process's result.

        Raises:
            TrainerError: the function raised it on some process; every process raises the first one's.
        """
        outcome = _attempt(make)
        failures = self.all_gather(outcome if isinstance(outcome, TrainerError) else None)
        for failure in failures:
            if failure:
                raise failure
        return outcome  # type: ignore[return-value]  # no process failed

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Broadcast the main process's buffers (running statistics), which are those in its checkpoints."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def scatter_from_main(self, parts: Sequence[torch.Tensor], into: torch.Tensor) -> None:
        """Copy one of the main process's tensors into each process's one, by rank.

        Args:
            parts: on the main process one for each rank; all contiguous, on the device, and of the size of `into`.
            into: contiguous, on the device.
        """
        if self.size == 1:
            into.copy_(parts[0])
        elif into.numel():
            # As bytes, because gloo doesn't know every type.
            dist.scatter(_as_bytes(into), [_as_bytes(part) for part in parts] if self.is_main else None, src=0)


ALONE = ProcessGroup(rank=0, size=1, device=torch.device("cpu"))


@contextmanager
def process_group(contract: RunContract) -> Iterator[ProcessGroup]:
    """Join torchrun's process group for the duration of the block.

    Tensors on a GPU use nccl (RCCL on ROCm), tensors in main memory use gloo. After an error the group is left as it
    is: NCCL's part of it would wait for collectives that the other processes no longer join. The process ends next.

    A group of CPUs is never destroyed: while that joins gloo's thread it holds the GIL, which the thread may be waiting
    for to release a tensor (torch 2.13, seen on a busy machine).

    Raises:
        BadRequestError: this machine has more processes than GPUs.
    """
    device = choose_device(contract)
    rank, size = contract.rank, contract.world_size
    if size == 1:
        # A group of one that the caller has opened can shard a model and synchronise like a larger one.
        store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
        yield ProcessGroup(rank=0, size=1, device=device, store=store)
        return
    torchrun_store, _, _ = next(rendezvous("env://"))
    store = open_group_store(torchrun_store, rank=rank, size=size)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if not dist.is_initialized():  # a run before this one in the same process has left its group
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    yield ProcessGroup(rank=rank, size=size, device=device, store=store)
    if device.type == "cuda":
        dist.destroy_process_group()


def choose_device(contract: RunContract) -> torch.device:
    """Choose this process's GPU if there is one (CUDA, or ROCm under the same name), else the CPU.

    Raises:
        BadRequestError: this machine has more processes than GPUs.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if contract.local_rank >= gpus:
        raise BadRequestError(
            f"process {contract.local_rank + 1} on this machine has no GPU",
            why=f"{gpus} GPUs are visible, and every process needs its own",
            fix=f"start torchrun with --nproc-per-node {gpus}, or hide the GPUs to train on the CPU",
        )
    device = torch.device("cuda", contract.local_rank)
    torch.cuda.set_device(device)
    return device


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _attempt(make: Callable[[], T]) -> T | TrainerError:
    try:
        return make()
    except TrainerError as err:
        return err
