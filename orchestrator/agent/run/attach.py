"""`attach`: shows the command's terminal."""

from __future__ import annotations

import os

from ..base import state
from ..base.config import read_run_config
from ..base.errors import RequestError
from ..base.layout import Layout
from ..base.parse import read_machine_config
from .supervisors import open_supervisor


def execute(layout: Layout) -> int:
    """Replace this process by the supervisor's client.

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
