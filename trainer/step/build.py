"""Builds a recipe's workload: its model as a module, without weights where another process sends them."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from trainer.base.errors import BadRequestError, TrainerError, first_line
from trainer.base.recipe import BuiltWorkload, Recipe, Workload
from trainer.base.rng import seed_all
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.assembly import is_sharded

_TORCH = str(Path(torch.__file__).parent)


def build_workload(recipe: Recipe[Any], group: ProcessGroup = ALONE) -> BuiltWorkload:
    """Build a recipe's workload with the initial weights of a run; collective.

    A model that a function makes, and that will be sharded over the group, has its weights on the main process only:
    on the others it is on the meta device, and takes no memory. Its weights depend on nothing but the seed, and the
    random generators are the same on every process afterwards.

    Raises:
        BadRequestError: the model's function fails, here or on the meta device, or makes no module; or the processes
            have made different models to be sharded.
    """
    settings = recipe.settings
    will_shard = is_sharded(settings.compute, group)
    seed_all(seed=settings.seed, rank=0, step=0)  # the same initial weights on every process
    # One machine may lack the data: then all end, and the main process says why.
    workload = group.call_on_every_rank(lambda: recipe.build(settings))
    model = workload.model
    if not isinstance(model, nn.Module):
        make, has_weights = model, group.is_main or not will_shard
        seed_all(seed=settings.seed, rank=0, step=0)
        model = group.call_on_every_rank(lambda: _make(make) if has_weights else _make_on_meta(make))
        seed_all(seed=settings.seed, rank=0, step=0)  # on the meta device no numbers were drawn
    if will_shard:
        _check_agreement(model, group)
    return _complete(workload, model)


def _complete(workload: Workload, model: nn.Module) -> BuiltWorkload:
    blocks: Any = workload.blocks
    if callable(blocks) and not isinstance(blocks, Sequence | nn.Module):
        blocks = blocks(model)
    values = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return BuiltWorkload(**{**values, "model": model, "blocks": tuple(blocks)})


def _make(
    make: Callable[[], nn.Module], what: str = "the model's function failed", fix: str = "correct that line"
) -> nn.Module:
    try:
        model = make()
    except TrainerError:
        raise
    except Exception as err:
        raise BadRequestError(what, why=f"{first_line(err)}{_place(err)}", fix=fix) from err
    if not isinstance(model, nn.Module):
        raise BadRequestError(
            "the recipe has no model",
            why=f"Workload.model is a function that returns {type(model).__name__} instead of an nn.Module",
            fix="return the module",
        )
    return model


def _make_on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        model = _make(
            make,
            "the model's function does not work on torch's meta device",
            "leave what needs a tensor's values or a device out of it (.item(), .numpy(), .to('cuda')), and give "
            "weights from a file by --init",
        )
    _check_registered(model)
    return model


def _check_registered(model: nn.Module) -> None:
    """Check that every tensor on the meta device is a parameter or a buffer: others would never get values.

    Raises:
        BadRequestError: one isn't.
    """
    registered = {*model.parameters(), *model.buffers()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            tensors = [part for part in tree_iter(value) if isinstance(part, torch.Tensor)]
            if any(tensor.is_meta and tensor not in registered for tensor in tensors):
                full_name = f"{path}.{name}" if path else name
                raise BadRequestError(
                    f"the model's {full_name} is neither a parameter nor a buffer",
                    why="compute.fully_shard sends only those to processes that make the model without values",
                    fix=f"use self.register_buffer({name!r}, tensor, persistent=False)",
                )


def _check_agreement(model: nn.Module, group: ProcessGroup) -> None:
    ours = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}{' trained' if tensor.requires_grad else ''}"
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    theirs = group.broadcast_from_main(lambda: ours)

    def check() -> None:
        if ours != theirs:
            mine, other = next(pair for pair in zip_longest(ours, theirs, fillvalue="no more") if len({*pair}) > 1)
            raise BadRequestError(
                "the processes have made different models",
                why=f"process {group.rank} has {mine}, where process 0 has {other}",
                fix="make the same model on every process, also on torch's meta device",
            )

    group.call_on_every_rank(check)


def _place(err: BaseException) -> str:
    """Return the innermost line of the user's code."""
    frames = [each for each in traceback.extract_tb(err.__traceback__) if not each.filename.startswith(_TORCH)]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
