"""When a run's processes agree on requests from outside."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from trainer.base.config import CheckpointSettings
from trainer.base.contract import read_contract
from trainer.base.signals import StopFlag
from trainer.group.distributed import ProcessGroup
from trainer.run.control import Control


def test_the_polls_between_two_agreements_grow_slowly(tmp_path: Path) -> None:
    """Fast polls say nothing about the next step, which may take a second while a stop waits."""
    polls = 0
    agreed: list[int] = []

    class OfTwo(ProcessGroup):
        """One of two processes; the other requests nothing."""

        def all_reduce_max(self, values: Sequence[int]) -> list[int]:
            agreed.append(polls)
            return list(values)

    group = OfTwo(rank=0, size=2, device=torch.device("cpu"))
    contract = read_contract(dict(os.environ), output_dir=tmp_path)
    control = Control(group, StopFlag(), contract, CheckpointSettings(), lambda: 0.0)
    for _ in range(15):
        polls += 1
        control.poll()
    assert agreed == [1, 3, 7, 15]
