"""Trains digits where one rank's device has memory for few samples; a test starts it with torchrun.

python scarce_run.py FOLDER PHASE RANK ROOM AFTER [SETTING ...]

PHASE is forward or backward; memory is scarce after AFTER training passes.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.trainer.harness import train_here
from trainer.base.hard_exit import hard_exit
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Workload
from trainer.recipes import digits

# Shape legend: B batch, C channels, H height, W width, K classes.
MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB."


class FailInBackward(torch.autograd.Function):
    """Passes values on; runs out of memory in the backward pass."""

    @staticmethod
    def forward(_ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError(MESSAGE)


class ScarceResNet(digits.SmallResNet):
    """The network, on a device with room for a few samples."""

    def __init__(self, *, width: int, room: int, phase: str, after: int) -> None:
        super().__init__(width=width, dropout=0.0)
        self.room = room
        self.phase = phase
        self.passes_left = after

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = super().forward(images_BCHW)  # type: ignore[no-untyped-call]  # torch's container
        if not self.training or len(images_BCHW) <= self.room:
            return logits_BK
        self.passes_left -= 1
        if self.passes_left >= 0:
            return logits_BK
        if self.phase == "forward":
            raise torch.OutOfMemoryError(MESSAGE)
        failing_BK: torch.Tensor = FailInBackward.apply(logits_BK)  # type: ignore[no-untyped-call]
        return failing_BK


def main(folder: str, phase: str, rank: str, room: str, after: str, *settings: str) -> int:
    is_scarce = os.environ.get("RANK", "0") == rank

    def build(chosen: digits.DigitsSettings) -> Workload:
        room_here = int(room) if is_scarce else 10**6
        model: nn.Module = ScarceResNet(width=chosen.model.width, room=room_here, phase=phase, after=int(after))
        return replace(digits.build_workload(chosen), model=model, blocks=())

    recipe = replace(digits.recipe(), settings=apply_overrides(digits.recipe().settings, settings), build=build)
    return train_here(recipe, Path(folder))


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
