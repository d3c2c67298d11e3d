"""`run`: starts a task's runner, and goes on with one that was slim meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import state
from ..base.config import open_task, read_run_config
from ..base.errors import AgentError
from ..base.files import try_lock
from ..base.layout import Layout
from ..waiting.leader import Leader
from ..waiting.signals import Signals
from .runner import Runner

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--task`."""
    parser.add_argument("--task", default="", help="the task, if the run has several")


def execute(layout: Layout, args: argparse.Namespace | None = None) -> int:
    """Run the command to its end; 0 if it succeeded or was stopped.

    Raises:
        AgentError: it is already running.
    """
    layout.prepare()
    context = open_task(layout, read_run_config(layout), args.task if args else "")
    context.task.prepare()
    lock = try_lock(context.task.lock("runner"))
    if lock is None:
        raise AgentError("the command is already running", fix="see it with `kedge-agent report`")
    before = state.load(context.task)
    if before.command.is_over:
        # A unit that is enabled at boot gets here after the run is over.
        sys.stderr.write(f"the command is over ({before.command.state}); `kedge-agent start` starts it again\n")
        return 0
    return Runner(context, before, Signals(), lock).work()


def go_on(root: str, name: str, leader: Leader, signals: Signals, lock: int) -> int:
    """Go on with an attempt whose command a slim runner has waited for (slim.py); return what `execute` returns."""
    layout = Layout(Path(root))
    context = open_task(layout, read_run_config(layout), name)
    return Runner(context, state.load(context.task), signals, lock).go_on(leader)
