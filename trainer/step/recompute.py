"""Gradient checkpointing: blocks drop their activations, and recompute them in the backward pass.

Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


def recompute_blocks(blocks: Iterable[nn.Module]) -> None:
    """Make these modules recompute in training's backward pass; their names, weights and classes stay the same.

    Dropout draws the same numbers again. Running statistics count each batch once.
    """
    # Imported here, because it takes most of a second that only some runs need.
    from torch.distributed._composable.checkpoint_activation import checkpoint  # noqa: PLC0415

    for block in blocks:
        kept = _KeptBuffers()
        block.register_forward_pre_hook(kept.note_module)  # before torch's hook, which calls `contexts`
        checkpoint(block, context_fn=kept.contexts)


class _KeptBuffers:
    """Restores the running statistics of a recomputed module: the first pass has counted this batch already."""

    def __init__(self) -> None:
        self._running: list[nn.Module] = []

    def note_module(self, module: nn.Module, _inputs: Any) -> None:
        """Note whose forward pass begins: a deep copy of a module has the same hooks."""
        self._running[:] = [module]

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Return the contexts of the first pass and of the recomputation."""
        return nullcontext(), _restoring_buffers(self._running[0])


@contextmanager
def _restoring_buffers(module: nn.Module) -> Iterator[None]:
    live = list(module.buffers())
    kept = [buffer.clone() for buffer in live]
    try:
        yield
    finally:
        with torch.no_grad():
            if live:
                torch._foreach_copy_(live, kept)
