"""Trains digits where one rank's device has memory for few samples; started by torchrun from a test.

python scarce_run.py FOLDER PHASE RANK ROOM [SETTING ...]
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainer.contract import read_contract
from trainer.engine import run_recipe
from trainer.errors import TrainerError
from trainer.leave import leave
from trainer.overrides import apply_overrides
from trainer.recipe import Workload
from trainer.recipes import digits
from trainer.signals import StopFlag

# Shape legend: B batch, C channels, H height, W width, K classes.
MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB."


class FailInBackward(torch.autograd.Function):
    """Pass values on; run out of memory on the way back."""

    @staticmethod
    def forward(_ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradients: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError(MESSAGE)


class ScarceResNet(digits.SmallResNet):
    """The network, on a device that has room for so many samples."""

    def __init__(self, *, width: int, room: int, phase: str) -> None:
        super().__init__(width=width, dropout=0.0)
        self.room = room
        self.phase = phase

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK = super().forward(images_BCHW)
        if not self.training or len(images_BCHW) <= self.room:
            return logits_BK
        if self.phase == "forward":
            raise torch.OutOfMemoryError(MESSAGE)
        failing_BK: torch.Tensor = FailInBackward.apply(logits_BK)  # type: ignore[no-untyped-call]
        return failing_BK


def main(folder: str, phase: str, rank: str, room: str, *settings: str) -> int:
    is_scarce = os.environ.get("RANK", "0") == rank

    def build(chosen: digits.DigitsSettings) -> Workload:
        model: nn.Module = ScarceResNet(width=chosen.model.width, room=int(room) if is_scarce else 10**6, phase=phase)
        return replace(digits.build_workload(chosen), model=model, blocks=())

    recipe = replace(digits.recipe(), settings=apply_overrides(digits.recipe().settings, settings), build=build)
    stop = StopFlag()
    stop.install()
    try:
        run_recipe("digits", recipe, read_contract(os.environ, output_dir=Path(folder)), stop)
    except TrainerError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    return 0


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
