"""`advise`: recommends batch, rate, accumulation and workers for a number of GPUs, each with its reason."""

import json as json_format
import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from trainer.base.config import Settings
from trainer.base.contract import RunContract
from trainer.base.errors import BadRequestError, DeviceMemoryError, first_line
from trainer.base.memory import is_out_of_memory
from trainer.base.recipe import BuiltWorkload, Moment, Recipe, Workload
from trainer.base.sources import StreamSource
from trainer.data.batch import can_split
from trainer.find.advice import (
    Advice,
    Facts,
    choose_per_device,
    list_micro_batches,
    plan_advice,
    render_advice,
    shard_facts,
)
from trainer.find.forecast import forecast_memory
from trainer.find.trial import Say, make_batch, prepare_trial
from trainer.group.distributed import ALONE, ProcessGroup, choose_device
from trainer.step.build import build_workload

_GIB = 1024**3
_TIMED_SAMPLES = 32


def advise(
    recipe: Recipe[Any], contract: RunContract, say: Say, *, gpus: int, memory_gib: float = 0.0, json: bool = False
) -> Advice:
    """Recommend settings for `gpus` GPUs, from the recipe's batch and rate on one.

    Memory is measured if this machine has a GPU, else forecast.

    Args:
        recipe: its settings are those of one GPU.
        contract: the run contract.
        say: prints a line.
        gpus: how many there will be.
        memory_gib: the memory of one of them; 0: that of this machine's.
        json: print one line of JSON instead of the table.

    Raises:
        BadRequestError: it was started with several processes, or there are fewer training samples than GPUs.
    """
    if contract.world_size > 1 or gpus < 1:
        raise BadRequestError(
            "advise runs as one process, for at least one GPU",
            why=f"{contract.world_size} processes were started, for {gpus} GPUs",
            fix="start it without torchrun: python -m trainer advise NAME --gpus 8",
        )
    workload = build_workload(recipe)
    samples = len(workload.train_data)
    per_device = choose_per_device(recipe.settings, gpus=gpus, samples=samples)
    seconds = _time_sample(workload, min(_TIMED_SAMPLES, per_device))
    gathered = _count_gathered(workload)
    device = choose_device(contract)
    sizes = list_micro_batches(per_device)
    one = replace(recipe, settings=_for_one_device(recipe.settings, per_device))
    find_memory = _measure if device.type == "cuda" else _forecast
    memory, source, parts = find_memory(one, workload, contract, device, sizes)
    facts = Facts(
        samples=samples,
        sample_seconds=seconds,
        cores=os.cpu_count() or 1,
        memory=memory,
        memory_source=source,
        parts=parts,
        available=int(memory_gib * _GIB) or _memory_of(device),
        is_stream=isinstance(workload.train_data, StreamSource),
    )
    if recipe.settings.compute.fully_shard and gpus > 1:
        facts = shard_facts(facts, gpus=gpus, gathered=gathered)
    advice = plan_advice(recipe.settings, facts, gpus=gpus)
    say(json_format.dumps(advice.dump()) if json else render_advice(advice))
    return advice


Memory = tuple[dict[int, int | None], str, dict[str, int]]


def _forecast(
    recipe: Recipe[Any], workload: BuiltWorkload, contract: RunContract, device: torch.device, sizes: list[int]
) -> Memory:
    """Forecast the memory of a step; a share of several micro-batches is traced with two of them."""
    share = make_batch(workload, sizes[0], device)
    sizes = sizes if can_split(share, sizes[0]) else sizes[:1]
    counts = {size: min(2 * size, sizes[0]) for size in sizes}
    batches = {size: make_batch(workload, count, device) for size, count in counts.items()}
    make_learner = partial(_make_learner, recipe, workload, contract, ALONE)
    try:
        found = forecast_memory(workload.model, make_learner, [(batches[size], counts[size], size) for size in sizes])
    except RuntimeError as err:
        return {}, f"not known: the step can't be traced ({first_line(err)})", {}
    rest = {size: _bytes_of(share) - _bytes_of(batch) for size, batch in batches.items()}
    memory: dict[int, int | None] = {size: peak + rest[size] for size, peak in zip(sizes, found.peaks, strict=True)}
    parts = {"weights": found.weights, "gradients": found.gradients, "optimizer": found.optimizer}
    return memory, "forecast, without the device's own context", parts


def _measure(
    recipe: Recipe[Any], workload: BuiltWorkload, contract: RunContract, device: torch.device, sizes: list[int]
) -> Memory:
    """Measure the memory of real steps, from the smallest micro-batch on."""
    learner = _make_learner(recipe, workload, contract, ProcessGroup(rank=0, size=1, device=device))
    learner.may_halve = False
    learner.model.train()
    share = make_batch(workload, sizes[0], device)
    sizes = sizes if can_split(share, sizes[0]) else sizes[:1]
    memory: dict[int, int | None] = {}
    for size in reversed(sizes):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        learner.micro_batch = size
        memory[size] = _peak_of_steps(learner, share, device)
        if memory[size] is None:
            break
    parts = {
        "weights": _bytes_of(list(learner.model.state_dict().values())),
        "gradients": _bytes_of([parameter.grad for parameter in learner.model.parameters()]),
        "optimizer": _bytes_of(list(learner.optimizer.state.values())),
    }
    return dict(sorted(memory.items(), reverse=True)), f"measured on {torch.cuda.get_device_name(device)}", parts


def _peak_of_steps(learner: Any, share: Any, device: torch.device) -> int | None:
    """Return the bytes reserved during two steps; None if memory runs out."""
    try:
        for number in range(2):
            learner.step(share, rate=1e-9, moment=Moment(step=number))
    except Exception as err:
        if isinstance(err, DeviceMemoryError) or is_out_of_memory(err):
            return None
        raise
    return int(torch.cuda.max_memory_reserved(device))


def _make_learner(recipe: Recipe[Any], workload: BuiltWorkload, contract: RunContract, group: ProcessGroup) -> Any:
    return prepare_trial(recipe, workload, contract, group, lambda _: None).learner


def _for_one_device(settings: Settings, per_device: int) -> Settings:
    """Return settings of one process: its share as the whole batch, nothing sharded or compiled."""
    compute = replace(settings.compute, fully_shard=False, compile=False)
    return replace(settings, batch_size=per_device, micro_batch=0, compute=compute)


def _time_sample(workload: Workload, count: int) -> float:
    """Return the seconds to make one sample, after the first batch has filled caches."""
    cpu = torch.device("cpu")
    make_batch(workload, count, cpu)
    began = time.perf_counter()
    make_batch(workload, count, cpu)
    return (time.perf_counter() - began) / count


def _count_gathered(workload: BuiltWorkload) -> int:
    """Count the bytes of weights that FSDP all-gathers at once: a block in use, and the next one ahead of its use."""
    blocks = [_bytes_of(list(block.parameters())) for block in workload.blocks]
    return 2 * max(blocks) if blocks else _bytes_of(list(workload.model.parameters()))


def _memory_of(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0


def _bytes_of(value: object) -> int:
    return sum(part.nbytes for part in tree_iter(value) if isinstance(part, torch.Tensor))
