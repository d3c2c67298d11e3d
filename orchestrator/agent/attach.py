"""`attach`: the command's own terminal."""

from __future__ import annotations

import argparse
import os

from . import state
from .config import read_run_config
from .errors import RequestError
from .layout import Layout
from .parse import read_machine_config
from .supervisors import open_supervisor


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Become the supervisor's own client.

    Raises:
        RequestError: there is nothing to attach to.
    """
    kind = state.load(layout).command.supervisor
    supervisor = open_supervisor(kind, layout, read_machine_config(layout), read_run_config(layout))
    argv = supervisor.attach_argv()
    if argv is None:
        raise RequestError(f"{kind} has no terminal to attach to", fix="follow the log: `kedge logs -f`")
    if not supervisor.alive():
        raise RequestError(f"there is no {kind} session", why="the command is over", fix="see `kedge logs`")
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted
