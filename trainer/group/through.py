"""Lets a loss use a model freely within the forward pass of DDP or FSDP, which do their work around that."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Through(nn.Module):
    """Calls functions with a model in its own forward pass.

    DDP prepares its all-reduce in the forward pass of the module that it wraps, and FSDP all-gathers the root's weights
    there. With this module around the model that covers a whole loss, which may call any method of the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(model, *arguments)`."""
        return function(self.model, *arguments)
