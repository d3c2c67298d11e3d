"""Searches the largest micro-batch where each rank has room for another one; a test starts it with torchrun.

python search_run.py ROOM_OF_RANK_0 ROOM_OF_RANK_1
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from tests.trainer.scarce_run import ScarceResNet
from trainer.base.contract import read_contract
from trainer.base.hard_exit import hard_exit
from trainer.base.recipe import Workload
from trainer.find.finders import find_micro_batch
from trainer.recipes import digits
from trainer.report.console import Console


def main(*rooms: str) -> int:
    contract = read_contract(os.environ, output_dir=Path("nowhere"))
    room = int(rooms[contract.rank])

    def build(chosen: digits.DigitsSettings) -> Workload:
        model = ScarceResNet(width=4, room=room, phase="backward", after=0)
        # A weighted loss needs the sum over the processes in a run: there must be no such collective here.
        return replace(digits.build_workload(chosen), model=model, blocks=(), weight=lambda batch: len(batch[1]))

    recipe = replace(digits.recipe(), build=build)
    fitting = find_micro_batch(recipe, contract, Console(enabled=contract.rank == 0).say, most=64)
    sys.stdout.write(f"rank {contract.rank}: {fitting}\n")
    return 0


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
