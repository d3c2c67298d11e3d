"""torch.compile, applied to modules in place: their names, weights and hooks stay, and it can be given up."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Compiler:
    """Compiles the forward passes of modules, each when it is first called. `is_on` is False without any.

    Only `forward` is compiled, not the hooks around it: FSDP's, and those of gradient checkpointing, which would keep
    the compiler from compiling anything. A module gets a subclass of its class, like FSDP's, so that a deep copy works.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._compiled_kinds: dict[type[nn.Module], type[nn.Module]] = {}

    def compile(self, module: nn.Module) -> None:
        """Compile a module's forward pass. Modules of one class share what is compiled, if their shapes agree."""
        self.is_on = True
        kind = type(module)
        if kind not in self._compiled_kinds:
            self._compiled_kinds[kind] = self._make_kind(kind)
        module.__class__ = self._compiled_kinds[kind]

    def give_up(self) -> None:
        """Run all modules without the compiler from now on."""
        self.is_on = False

    def _make_kind(self, kind: type[nn.Module]) -> type[nn.Module]:
        eager: Callable[..., Any] = kind.forward
        compiled = torch.compile(eager)

        def forward(module: nn.Module, *inputs: Any, **options: Any) -> Any:
            return (compiled if self.is_on else eager)(module, *inputs, **options)

        return type(kind.__name__, (kind,), {"forward": forward, "__doc__": kind.__doc__})


def is_compiler_error(err: Exception) -> bool:
    """Tell whether the compiler failed, not the code that it compiles."""
    # The module takes a second to import; it has been imported if anything was compiled.
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(err, exceptions.TorchDynamoException)
