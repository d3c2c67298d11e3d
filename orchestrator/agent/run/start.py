"""`start`: reads a run's configuration from standard input, and starts the runner under its supervisor."""

from __future__ import annotations

import json
import sys

from ..base import state
from ..base.config import write_run_config
from ..base.errors import AgentError, RequestError
from ..base.files import locked
from ..base.layout import Layout
from ..base.parse import parse_run_config, read_machine_config
from ..base.polling import poll_until
from ..base.state import State
from ..base.wire import Command, RunConfig, to_json
from ..code.links import apply_links
from ..code.releases import current_or_empty
from .supervisors import open_supervisor

_LIMIT_BYTES = 4 << 20
_LOCK_SECONDS = 60.0
_RUNNER_SECONDS = 30.0


def execute(layout: Layout) -> int:
    """Start the run from standard input, and print its state. A live run is left alone."""
    raw = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
    if len(raw) > _LIMIT_BYTES:
        raise RequestError("the run's configuration is too long", why=f"more than {_LIMIT_BYTES} bytes")
    print_command(start(layout, parse_run_config(raw)).command)
    return 0


def start(layout: Layout, config: RunConfig) -> State:
    """Start the runner under its supervisor. A live run is left alone.

    Raises:
        RequestError: there is no such supervisor.
        AgentError: the supervisor refuses, or no runner appeared.
    """
    layout.prepare()
    with locked(layout.lock("start"), timeout=_LOCK_SECONDS):
        present = state.load(layout)
        if present.command.is_live and present.runner_lives:
            sys.stderr.write("the command is already running; nothing was changed\n")
            return present
        return _start(layout, config, present)


def relaunch(layout: Layout, config: RunConfig) -> State:
    """Replace a dead runner by a new one, which makes the next attempt.

    Raises:
        AgentError: the supervisor refuses, or no runner appeared.
    """
    with locked(layout.lock("start"), timeout=_LOCK_SECONDS):
        present = state.load(layout)
        if not present.command.is_live or present.runner_lives:
            return present
        return _supervise(layout, config, present)


def print_command(command: Command) -> None:
    """Print the command's state as one line of JSON."""
    sys.stdout.write(json.dumps(to_json(command)) + "\n")


def _start(layout: Layout, config: RunConfig, present: State) -> State:
    supervisor = open_supervisor(config.supervisor, layout, read_machine_config(layout), config)
    # A killed runner leaves processes; a runner that ended by itself doesn't.
    state.end_processes(present)
    write_run_config(layout, config)
    apply_links(layout, config, current_or_empty(layout))
    layout.note("stop").unlink(missing_ok=True)
    before = state.fresh(config.supervisor, config.restarts, config.grace)
    with state.changing(layout):
        state.save(layout, before)
    supervisor.start([str(layout.launcher), "run"])
    return _await_runner(layout, before)


def _supervise(layout: Layout, config: RunConfig, present: State) -> State:
    supervisor = open_supervisor(config.supervisor, layout, read_machine_config(layout), config)
    supervisor.start([str(layout.launcher), "run"])
    return _await_runner(layout, present)


def _await_runner(layout: Layout, before: State) -> State:
    def has_appeared() -> bool:
        return state.load(layout).runner_identity != before.runner_identity

    if not poll_until(has_appeared, seconds=_RUNNER_SECONDS):
        raise AgentError(
            f"the runner did not appear within {_RUNNER_SECONDS:g} s",
            why=f"{before.command.supervisor} was started, but no runner",
            fix=f"see {layout.root}/nohup.log, or run `kedge-agent run` by hand",
        )
    return state.load(layout)
