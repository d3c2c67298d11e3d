"""Starts runs on two ranks from weights and from one another's checkpoints; a test starts it with torchrun.

python started_run.py FOLDER WEIGHTS
"""

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.trainer.divided_run import build
from tests.trainer.harness import train_here
from trainer.base.config import Settings
from trainer.base.hard_exit import hard_exit
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Recipe
from trainer.base.start_from import StartFrom

# A rate of almost 0: the weights at the end are those at the start.
FROZEN = ("optimizer.learning_rate=1e-12", "schedule.name=constant", "ema_decay=0.9")


def train(folder: Path, start: StartFrom, *settings: str) -> int:
    base = Settings(epochs=2, batch_size=16, curves=False, onnx=False, log_every_steps=1)
    chosen = apply_overrides(base, (*FROZEN, *settings))
    return train_here(Recipe(settings=chosen, build=lambda _: build(2)), folder, start_from=start)


def main(folder: str, weights: str) -> int:
    here = Path(folder)
    # Only the main process has the file.
    init = StartFrom(init=weights if os.environ["RANK"] == "0" else "/nowhere/weights.safetensors")
    theirs = here / "epoch_0.pth"
    if os.environ["RANK"] == "0":
        model = build(0).model
        optimizer = torch.optim.Adam(model.parameters())
        torch.stack([parameter.sum() for parameter in model.parameters()]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(load_file(weights)[name])
        content = {"epoch": 0, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(content, theirs)
    return max(
        train(here / "sharded", init, "compute.fully_shard=true", "epochs=1"),
        train(here / "replicated", init, "epochs=1"),
        train(here / "again", StartFrom(checkpoint=here / "sharded"), "batch_size=8"),
        train(here / "foreign", StartFrom(checkpoint=theirs), "compute.fully_shard=true"),
        train(here / "resharded", StartFrom(checkpoint=here / "replicated"), "compute.fully_shard=true"),
    )


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
