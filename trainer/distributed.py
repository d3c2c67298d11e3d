"""The processes that train together, seen from one of them; alone is a world of one."""

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

from trainer.contract import RunContract
from trainer.errors import BadRequestError, TrainerError
from trainer.rendezvous import open_group_store

T = TypeVar("T")
# The name from torch 2.13 on, and the one before.
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(DistributedDataParallel.__init__).parameters
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among its peers. Every method but `wrap` is collective: all ranks call it in step."""

    rank: int
    size: int
    device: torch.device
    store: Store | None = None
    """Where the processes met, for what is said between them outside of collectives; None alone."""

    @property
    def is_main(self) -> bool:
        """Tell whether this is the process that prints and writes files."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Make a model average its gradients over the processes.

        Its forward pass has no collectives: a process may do one again alone. Running statistics are the main
        process's, from `copy_buffers` before each validation.
        """
        if self.size == 1:
            return model
        devices = [self.device] if self.device.type == "cuda" else None
        options: dict[str, Any] = {_SYNC_BUFFERS: False}
        return DistributedDataParallel(model, device_ids=devices, **options)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add a tensor up over the processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values, op=dist.ReduceOp.SUM)
        return values

    def add(self, values: Sequence[float]) -> list[float]:
        """Add numbers up over the processes, element by element, on the CPU: the device isn't waited for."""
        if self.size == 1:
            return list(values)
        return [float(value) for value in self.sum(torch.tensor(values, dtype=torch.float64)).tolist()]

    def maximum(self, values: Sequence[int]) -> list[int]:
        """Take the element-wise maximum over the processes, on the CPU: the device isn't waited for."""
        if self.size == 1:
            return list(values)
        agreed = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return [int(value) for value in agreed.tolist()]

    def gather(self, value: T) -> list[T]:
        """Collect one value of every process, by rank."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_main(self, make: Callable[[], T]) -> T:
        """Call a function on the main process and hand its result to all.

        Raises:
            TrainerError: the function raised it on the main process; then it is raised on all.
        """
        return self.from_rank(0, make)

    def from_rank(self, rank: int, make: Callable[[], T]) -> T:
        """Call a function on one process and hand its result to all.

        Raises:
            TrainerError: the function raised it there; then it is raised on all.
        """
        outcome = _attempt(make) if self.rank == rank else None
        if self.size > 1:
            box = [outcome]
            dist.broadcast_object_list(box, src=rank)
            outcome = box[0]
        if isinstance(outcome, TrainerError):
            raise outcome
        return outcome  # type: ignore[return-value]  # what make returned, after a round trip

    def each(self, make: Callable[[], T]) -> T:
        """Call a function on every process and return what this one's returned.

        Raises:
            TrainerError: the function raised it on some; then the first one's is raised on all.
        """
        outcome = _attempt(make)
        failures = self.gather(outcome if isinstance(outcome, TrainerError) else None)
        for failure in failures:
            if failure:
                raise failure
        return outcome  # type: ignore[return-value]  # no process failed

    def copy_buffers(self, model: nn.Module) -> None:
        """Give all processes the main one's buffers (running statistics), as its checkpoints have them."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)


ALONE = World(rank=0, size=1, device=torch.device("cpu"))


@contextmanager
def joined_world(contract: RunContract) -> Iterator[World]:
    """Join the processes that torchrun started, for as long as the block lasts.

    On a GPU, tensors there go through nccl (RCCL on ROCm) and tensors in main memory through gloo.

    Raises:
        BadRequestError: this machine has more processes than GPUs.
    """
    device = choose_device(contract)
    rank, size = contract.rank, contract.world_size
    if size == 1:
        yield World(rank=0, size=1, device=device)
        return
    torchruns, _, _ = next(rendezvous("env://"))
    store = open_group_store(torchruns, rank=rank, size=size)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield World(rank=rank, size=size, device=device, store=store)
    finally:
        dist.destroy_process_group()


def choose_device(contract: RunContract) -> torch.device:
    """Choose this process's GPU where there is one (CUDA, or ROCm under the same name), else the CPU.

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


def _attempt(make: Callable[[], T]) -> T | TrainerError:
    try:
        return make()
    except TrainerError as err:
        return err
