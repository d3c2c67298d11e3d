"""`attach`: shows a command's terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..base.config import open_task, read_run_config
from ..base.errors import RequestError
from ..base.layout import Layout
from ..base.wire import RunConfig
from .supervisors import open_supervisor

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--task`."""
    parser.add_argument("--task", default="", help="the task, if the run has several")


def execute(layout: Layout, args: argparse.Namespace | None = None) -> int:
    """Replace this process by the supervisor's client.

    Raises:
        RequestError: there is nothing to attach to, or the task isn't named.
    """
    run = read_run_config(layout)
    context = open_task(layout, run, args.task if args and args.task else _only_task(run))
    kind = context.config.supervisor
    supervisor = open_supervisor(context)
    argv = supervisor.attach_argv()
    if argv is None:
        raise RequestError(f"{kind} has no terminal to attach to", fix="follow the log: `kedge logs -f`")
    if not supervisor.alive():
        raise RequestError(f"there is no {kind} session", why="the command is over", fix="see `kedge logs`")
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted


def _only_task(run: RunConfig) -> str:
    names = [task.name for task in run.tasks]
    if len(names) > 1:
        raise RequestError("the run has several tasks", fix=f"name one with --task: {', '.join(names)}")
    return names[0]
