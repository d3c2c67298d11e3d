"""Enters a run's next mode, killed at each file that it puts in its place: `python -m tests.agent.killed_modes FOLDER`.

Prints the modes that the run enters afterwards, a line for each of these kills.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path

from orchestrator.agent.base.config import present_mode, read_next_mode, write_run_config
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.parse import parse_run_config
from orchestrator.agent.base.wire import RunConfig
from orchestrator.agent.run.start import enter_mode
from tests.agent.box import RUN
from tests.agent.configs import USUAL, on_the_wire

MODES = ("validate", "fast", "slow")


def make_run() -> RunConfig:
    modes = [on_the_wire({**USUAL, "mode": name, "sequence": at}) for at, name in enumerate(MODES)]
    return parse_run_config(json.dumps({**modes[0], "then": modes[1:]}).encode())


def make_machine(root: Path) -> Layout:
    layout = Layout(root)
    layout.prepare()
    machine: dict[str, object] = {"machine": f"{RUN}-m1", "run": RUN, "provider": "local", "root": str(root)}
    machine |= {"created": 0, "deadline": 1, "usd_per_hour": "0"}
    layout.machine_file.write_text(json.dumps(machine))
    write_run_config(layout, make_run())
    return layout


def die_at(step: int) -> None:
    steps = count(1)

    def hook(event: str, _: object) -> None:
        if event == "os.rename" and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def enter_and_die(layout: Layout, step: int) -> bool:
    """Enter the next mode in a child process; return whether it was killed."""
    child = os.fork()
    if not child:
        die_at(step)
        enter_next(layout)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def enter_next(layout: Layout) -> bool:
    following = read_next_mode(layout)
    if following is not None:
        enter_mode(layout, following)
    return following is not None


def main(folder: Path) -> None:
    for step in count(1):
        layout = make_machine(folder / str(step))
        was_killed = enter_and_die(layout, step)
        entered = [present_mode(layout)[1]]
        while enter_next(layout):
            entered.append(present_mode(layout)[1])
        print(*entered)
        if not was_killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
