"""Gradient checkpointing: blocks drop their activations, and recompute them in the backward pass.

Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_blocks(blocks: Iterable[nn.Module]) -> None:
    """Make these modules recompute in training's backward pass; their names and weights stay the same."""
    for block in blocks:
        _recompute(block)


def _recompute(block: nn.Module) -> None:
    compute = block.forward

    def forward(*inputs: Any, **options: Any) -> Any:
        if not (block.training and torch.is_grad_enabled()):
            return compute(*inputs, **options)
        return checkpoint(compute, *inputs, use_reentrant=False, context_fn=contexts, **options)

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), _restoring_buffers(block)

    block.forward = forward  # a wrapper module would change the weights' names


@contextmanager
def _restoring_buffers(block: nn.Module) -> Iterator[None]:
    """Restore running statistics afterwards: the first pass has counted this batch already."""
    kept = [(buffer, buffer.clone()) for buffer in block.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
