"""Which operations a function calls, and how large their results are: what it would cost on another computer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class CountedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Counts the calls of each operation of torch, all elements of their results, and those of the largest one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.calls: Counter[str] = Counter()
        self.elements = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation."""
        result = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        for each in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(each, torch.Tensor):
                self.elements, self.largest = self.elements + each.numel(), max(self.largest, each.numel())
        return result
