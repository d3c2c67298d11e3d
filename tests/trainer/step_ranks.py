"""Compares steps of two ranks with those of one process; a test starts it with torchrun.

python step_ranks.py steps: each compiled way to share a step leads to the same weights; prints what agreed.
python step_ranks.py failure: the last rank fails while the others wait for it in an all-reduce.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, but not in its __all__
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.learners import FEATURES, PlainNet, make_learner_of, seeded
from trainer.base.contract import read_contract
from trainer.base.hard_exit import hard_exit
from trainer.base.recipe import Moment
from trainer.base.sources import Batch
from trainer.data.batch import slice_batch
from trainer.group.distributed import ALONE, ProcessGroup, process_group

# Shape legend: B batch, F features, K classes.
PADDING = -100
SHARES = [[0, PADDING, PADDING, 1], [0, 1, 2, PADDING]]
"""The labels of the first and the second rank."""
STEPS = 3


class Net(PlainNet):
    """Has more than a forward pass, and a weight that only some losses use."""

    def __init__(self) -> None:
        super().__init__()
        self.shift_F = nn.Parameter(torch.ones(FEATURES))

    def noise(self, values_BF: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(values_BF * self.shift_F))
        return logits_BK


def noise_of(model: nn.Module, values_BF: torch.Tensor) -> torch.Tensor:
    assert isinstance(model, Net)
    return model.noise(values_BF)


def loss_of_method(model: nn.Module, batch: Batch) -> torch.Tensor:
    return functional.cross_entropy(noise_of(model, batch[0]), batch[1], ignore_index=PADDING)


def loss_of_forward(model: nn.Module, batch: Batch) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], ignore_index=PADDING)


def loss_of_forward_and_all(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Use every weight: DDP would wait for one that isn't used."""
    return loss_of_forward(model, batch) + loss_of_method(model, batch)


def count_labels(batch: Batch) -> torch.Tensor:
    labels_B: torch.Tensor = batch[1]
    return (labels_B != PADDING).sum()


METHOD = {"loss": loss_of_method, "weight": count_labels}
CASES: dict[str, tuple[tuple[str, ...], Mapping[str, Any], float]] = {
    "a method of the model": ((), METHOD, 1e-5),
    "accumulated": (("micro_batch=2",), METHOD, 1e-5),
    "static graph, accumulated": (("micro_batch=2", "compute.static_graph=on"), METHOD, 1e-5),
    "unused weight": (("compute.find_unused_parameters=on",), {**METHOD, "loss": loss_of_forward}, 1e-5),
    "sharded": (("compute.fully_shard=on",), METHOD, 1e-5),
    "sharded, sgd": (("compute.fully_shard=on", "optimizer.name=sgd"), METHOD, 1e-5),
    "sharded, accumulated": (("compute.fully_shard=on", "micro_batch=2"), METHOD, 1e-5),
    "sharded, offloaded, recomputed": (
        ("compute.fully_shard=on", "compute.cpu_offload=on", "compute.gradient_checkpointing=on", "micro_batch=2"),
        METHOD,
        1e-5,
    ),
    "compiled": (("compute.compile=on",), {**METHOD, "loss": loss_of_forward_and_all}, 1e-5),
    "sharded, recomputed, compiled": (
        ("compute.fully_shard=on", "compute.compile=on", "compute.gradient_checkpointing=on", "micro_batch=2"),
        METHOD,
        1e-5,
    ),
    "sharded, bf16": (("compute.fully_shard=on", "compute.amp=bf16", "ema_decay=0.9"), METHOD, 3e-2),
}
COMPILED = tuple(name for name in CASES if "compiled" in name)


def make_batch() -> Batch:
    draw = torch.Generator().manual_seed(1)
    labels = [label for share in SHARES for label in share]
    return torch.randn(len(labels), FEATURES, generator=draw), torch.tensor(labels)


def train(settings: tuple[str, ...], changes: Mapping[str, Any], group: ProcessGroup) -> dict[str, torch.Tensor]:
    """Return the weights after some steps, and the output of what would be validated."""
    learner = make_learner_of(settings, model=seeded(Net), changes=changes, group=group)
    batch, share = make_batch(), 8 // group.size
    mine = slice_batch(batch, group.rank * share, (group.rank + 1) * share)
    for number in range(STEPS):
        result = learner.step(mine, rate=0.01, moment=Moment(step=number))
    gather: Callable[[torch.Tensor], torch.Tensor] = learner.sharding.all_gather if learner.sharding else torch.clone
    weights = {name: gather(value) for name, value in learner.model.state_dict().items()}
    learner.prepare_evaluation()
    with torch.no_grad():
        logits_BK = learner.call_evaluated(noise_of, batch[0])
    loss = group.all_reduce_sum(result.loss) / group.size
    return {**weights, "loss": loss, "logits": logits_BK.float()}


def compile_without_kernels() -> list[Any]:
    """Let the compiler compute its graphs as they are, because kernels take long; return the list of them."""
    graphs: list[Any] = []

    def run_eagerly(_inductor: object, graph: Any, _inputs: object) -> Any:
        graphs.append(graph)
        return graph

    torch._TorchCompileInductorWrapper.__call__ = run_eagerly  # type: ignore[assignment, method-assign]  # torch has no setting
    return graphs


def compare(name: str, group: ProcessGroup) -> None:
    """Compare this rank's result with that of one process."""
    settings, changes, tolerance = CASES[name]
    alone = tuple(one for one in settings if not one.startswith("compute.") or "amp" in one)
    expected = train(tuple(one for one in alone if "micro_batch" not in one), changes, ALONE)
    found = train(settings, changes, group)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=tolerance, atol=tolerance, msg=f"{name}: {key}")


def compare_steps() -> None:
    graphs = compile_without_kernels()
    with process_group(read_contract(os.environ)) as group:
        for name in COMPILED:
            compare(name, group)
            assert graphs, name
            graphs.clear()
            if group.is_main:
                print(f"agrees: {name}", flush=True)


class CountedReduceScatter(DefaultReduceScatter):
    """Counts its calls. A TorchDispatchMode would see them too, but has crashed beside the threads of other ranks."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args: Any, **more: Any) -> dist.Work:
        self.calls += 1
        return super().__call__(*args, **more)


def count_reduce_scatters(micro_batch: int, group: ProcessGroup) -> int:
    """Count the collectives by which a sharded step averages gradients."""
    settings = ["compute.fully_shard=on", f"micro_batch={micro_batch}"]
    learner = make_learner_of(settings, model=seeded(Net), changes=METHOD, group=group)
    counted = CountedReduceScatter()
    for module in learner.gradient.through.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(counted)
    mine = slice_batch(make_batch(), group.rank * 4, group.rank * 4 + 4)
    learner.step(mine, rate=0.01, moment=Moment(step=0))
    return counted.calls


def count_all_reduces(micro_batch: int, group: ProcessGroup) -> int:
    """Count the buckets of gradients that DDP averages in two steps; the model fits into one."""
    learner = make_learner_of([f"micro_batch={micro_batch}"], model=seeded(Net), changes=METHOD, group=group)
    mine = slice_batch(make_batch(), group.rank * 4, group.rank * 4 + 4)
    averaged: list[int] = []

    def count(_state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        averaged.append(bucket.index())
        assert dist.group.WORLD is not None
        return allreduce_hook(dist.group.WORLD, bucket)

    assert isinstance(learner.gradient.through, DistributedDataParallel)
    learner.gradient.through.register_comm_hook(None, count)
    for number in range(2):
        learner.step(mine, rate=0.01, moment=Moment(step=number))
    return len(averaged)


def fail() -> None:
    try:
        with process_group(read_contract(os.environ)) as group:
            _raise_or_wait(group)
    except RuntimeError as err:
        rank = os.environ["RANK"]
        print(f"rank {rank}: {'this rank' in str(err)} {dist.is_initialized()}", flush=True)
        hard_exit(1)


def _raise_or_wait(group: ProcessGroup) -> None:
    if group.rank == group.size - 1:
        raise RuntimeError("this rank fails")
    group.all_reduce_sum(torch.zeros(1))


if __name__ == "__main__":
    fail() if sys.argv[1] == "failure" else compare_steps()
    hard_exit(0)
