"""Gradient checkpointing: blocks drop their activations, and recompute them in the backward pass.

Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

Context = AbstractContextManager[Any]


def recompute_blocks(blocks: Iterable[nn.Module]) -> None:
    """Make these modules recompute in training's backward pass; their names, weights and classes stay the same.

    Dropout draws the same numbers again. Running statistics count each batch once.
    """
    # Imported here, because it takes most of a second that only some runs need.
    from torch.distributed._composable.checkpoint_activation import checkpoint  # noqa: PLC0415

    for block in blocks:
        note_module, contexts = _make_hooks()
        block.register_forward_pre_hook(note_module)  # before torch's hook, which calls `contexts`
        checkpoint(block, context_fn=contexts)


def _make_hooks() -> tuple[Callable[..., None], Callable[[], tuple[Context, Context]]]:
    """Make a hook that notes whose forward pass begins, and torch's `context_fn`, which isn't told.

    A deep copy of a module has the same hooks, which must not restore the original's buffers. Plain functions, because
    methods are copied together with their object.
    """
    running: list[nn.Module] = []

    def note_module(module: nn.Module, _inputs: Any) -> None:
        running[:] = [module]

    def contexts() -> tuple[Context, Context]:
        return nullcontext(), _restoring_buffers(running[0])

    return note_module, contexts


@contextmanager
def _restoring_buffers(module: nn.Module) -> Iterator[None]:
    """Restore running statistics after a recomputation: the first pass has counted this batch already."""
    live = list(module.buffers())
    kept = [buffer.clone() for buffer in live]
    try:
        yield
    finally:
        with torch.no_grad():
            if live:
                torch._foreach_copy_(live, kept)
