"""Builds a recipe's workload: its model as a module, without weights where another process sends them."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError, TrainerError, first_line
from trainer.base.recipe import BuiltWorkload, Recipe, Workload
from trainer.base.rng import seed_all
from trainer.group.distributed import ALONE, ProcessGroup
from trainer.step.assembly import is_sharded

_OWN = {"_parameters", "_buffers", "_modules", "_flat_weights"}


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
    has_weights = group.is_main or not will_shard

    def build() -> BuiltWorkload:
        workload = recipe.build(settings)
        model, is_made = workload.model, not isinstance(workload.model, nn.Module)
        if not isinstance(model, nn.Module):
            _seed(settings)
            model = _make(model) if has_weights else _make_on_meta(model)
            _seed(settings)  # on the meta device no numbers were drawn
        if will_shard:
            _check_attributes(model, is_made=is_made)
        return _complete(workload, model)

    _seed(settings)
    # One machine may lack the data: then all end, and the main process says why.
    workload = group.call_on_every_rank(build)
    if will_shard:
        _check_agreement(workload.model, group)
    return workload


def _seed(settings: Settings) -> None:
    """Let every process draw the same initial weights."""
    seed_all(seed=settings.seed, rank=0, step=0)


def _complete(workload: Workload, model: nn.Module) -> BuiltWorkload:
    blocks: Any = workload.blocks
    if callable(blocks) and not isinstance(blocks, Sequence | nn.Module):
        blocks = blocks(model)
    values = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return BuiltWorkload(**{**values, "model": model, "blocks": tuple(blocks)})


def _make(make: Callable[[], nn.Module]) -> nn.Module:
    model = make()
    if not isinstance(model, nn.Module):
        raise BadRequestError(
            "the recipe has no model",
            why=f"Workload.model is a function that returns {type(model).__name__} instead of an nn.Module",
            fix="return the module",
        )
    return model


def _make_on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    try:
        with torch.device("meta"):
            return _make(make)
    except Exception as err:
        raise BadRequestError(
            "the model's function does not work on torch's meta device",
            why=err.why if isinstance(err, TrainerError) else first_line(err),
            fix="leave what needs a tensor's values or a device out of it (.item(), .numpy(), .to('cuda')), and give "
            "weights from a file by --init",
        ) from err


def _check_attributes(model: nn.Module, *, is_made: bool) -> None:
    """Check that the model has its tensors where sharding finds them.

    Raises:
        BadRequestError: a list of parameters would keep the unsharded ones; or the function that made the model gave it
            a tensor that is neither parameter nor buffer, which has other values on each process, or none.
    """
    registered = {*model.parameters(), *model.buffers()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            # Modules' own dictionaries, and the list of recurrent layers, which follows its parameters.
            if name in _OWN:
                continue
            tensors = [part for part in tree_iter(value) if isinstance(part, torch.Tensor)]
            full_name = f"{path}.{name}" if path else name
            if is_made and any(tensor not in registered for tensor in tensors):
                raise BadRequestError(
                    f"the model's {full_name} is neither a parameter nor a buffer",
                    why="compute.fully_shard sends only those to processes that make the model without values",
                    fix=f"use self.register_buffer({name!r}, tensor, persistent=False)",
                )
            if not isinstance(value, torch.Tensor) and any(tensor in registered for tensor in tensors):
                raise BadRequestError(
                    f"the model's {full_name} holds parameters or buffers",
                    why="compute.fully_shard replaces them by this process's rows, and does not look there",
                    fix="take them from their modules when they are used, or keep them in an nn.ParameterList",
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
