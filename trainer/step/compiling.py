"""torch.compile, applied to modules in place: their names, weights and hooks stay, and it can be given up."""

import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn

Forward = Callable[..., Any]
Structure = tuple[Any, ...]
_TORCH = str(Path(torch.__file__).parent)


class Compiler:
    """Compiles the forward passes of modules, each when it is first called. `is_on` is False without any.

    Only `forward` is compiled, not the hooks around it: FSDP's, and those of gradient checkpointing, which would keep
    the compiler from compiling anything. A module gets a subclass of its class, like FSDP's, so that a deep copy works.

    torch compiles a code object for at most 8 kinds of inputs and modules (torch._dynamo.config.recompile_limit), and
    leaves the others alone. So each structure of a module has its own, one for training and one for validation.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.is_on = False
        self._say = say
        self._waits_for_call = True
        self._compiled_kinds: dict[Structure, type[nn.Module]] = {}

    def compile(self, module: nn.Module) -> None:
        """Compile a module's forward pass. Modules of one structure share what is compiled."""
        if not self.is_on:
            _report_limit(self._say)
        self.is_on = True
        structure = _describe_structure(module)
        if structure not in self._compiled_kinds:
            self._compiled_kinds[structure] = self._make_kind(type(module))
        module.__class__ = self._compiled_kinds[structure]

    def give_up(self) -> None:
        """Run all modules without the compiler from now on."""
        self.is_on = False

    def check_use(self) -> None:
        """After a step: say once if no compiled forward pass has been called yet."""
        if self.is_on and self._waits_for_call:
            self._waits_for_call = False
            self._say(
                "compute.compile has no effect: only forward passes are compiled, and the loss calls none; "
                "let it call the model itself, model(...), and do the work in forward"
            )

    def _make_kind(self, kind: type[nn.Module]) -> type[nn.Module]:
        eager: Forward = kind.forward
        number = len(self._compiled_kinds)
        training, validation = (
            torch.compile(_copy_function(eager, f"forward_{number}_{use}")) for use in ("training", "validation")
        )

        @wraps(eager)  # libraries look at its parameters
        def forward(module: nn.Module, *inputs: Any, **options: Any) -> Any:
            if not self.is_on:
                return eager(module, *inputs, **options)
            self._waits_for_call = False
            return (training if module.training else validation)(module, *inputs, **options)

        return type(kind.__name__, (kind,), {"forward": forward, "__doc__": kind.__doc__})


def is_compiler_error(err: Exception) -> bool:
    """Tell whether the compiler failed, not the code that it compiles."""
    # The module takes a second to import; it has been imported if anything was compiled.
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(err, exceptions.TorchDynamoException)


def _describe_structure(module: nn.Module) -> Structure:
    """List what differs between modules that can't share compiled code: classes, tensors and floats.

    Floats are constants in compiled code (each layer's own rate of dropout). Integers would be as well, but they may
    only number the layers, which are compiled once then.
    """
    parts = tuple((name, type(part), _list_floats(part)) for name, part in module.named_modules())
    tensors = (*module.named_parameters(), *module.named_buffers())
    return parts, tuple((name, each.shape, each.dtype, each.requires_grad) for name, each in tensors)


def _list_floats(module: nn.Module) -> tuple[tuple[str, float], ...]:
    return tuple((name, value) for name, value in vars(module).items() if isinstance(value, float))


def _copy_function(function: Any, name: str) -> Forward:
    """Copy a function together with its code object. With its own name that isn't equal to another copy's."""
    if not isinstance(function, FunctionType) or function.__code__.co_filename.startswith(_TORCH):
        function = _wrap(function)  # else torch wraps what is its own, and all wrappers have one code object
    code = function.__code__.replace(co_name=name)
    copied = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _wrap(function: Forward) -> Forward:
    def call(*inputs: Any, **options: Any) -> Any:
        return function(*inputs, **options)

    return call


class _LimitFilter(logging.Filter):
    """Replaces torch's warnings that a code object isn't compiled any more by one line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._has_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if "hit config." not in str(record.msg):
            return True
        if not self._has_said:
            self._has_said = True
            details = [line.strip() for line in record.getMessage().splitlines()[:2]]
            self._say(f"torch.compile: the rest runs uncompiled, because {', '.join(details)}")
        return False


def _report_limit(say: Callable[[str], None]) -> None:
    """Say it once if torch's limit is reached; a process's earlier runs say nothing more."""
    logger = logging.getLogger("torch._dynamo.convert_frame")
    for each in [each for each in logger.filters if isinstance(each, _LimitFilter)]:
        logger.removeFilter(each)
    logger.addFilter(_LimitFilter(say))
