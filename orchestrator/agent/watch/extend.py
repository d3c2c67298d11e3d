"""`extend`: moves the machine's deadline. On a cloud's machine only root can, so that no job moves its own."""

from __future__ import annotations

import argparse
import json
import time

from ..base.calling import call
from ..base.errors import AgentError, RequestError
from ..base.files import write_atomically
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.record import key_of

_DEADLINE = key_of("deadline_at")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--deadline", type=int, required=True, help="the new deadline, in Unix seconds")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Move root's timer, then the deadline that the agent keeps; the same request again changes nothing.

    A process that is killed in between leaves a machine that ends at the earlier of the two deadlines.

    Raises:
        RequestError: the deadline is over, or this machine can't move it.
        AgentError: the timer or machine.json can't be written, for example because this user isn't root.
    """
    machine = read_machine_config(layout)
    if not machine.can_extend:
        raise RequestError("this machine can't move its deadline", why="an earlier version of kedge has created it")
    deadline_at = args.deadline - machine.margin
    if deadline_at <= time.time():
        raise RequestError(f"the deadline {args.deadline} is over", why="it is earlier than this machine's clock")
    if machine.arm_command:
        call([*machine.arm_command, str(args.deadline)])
    try:
        _write(layout, deadline_at)
    except OSError as err:
        raise AgentError(f"{layout.machine_file} can't be written", why=str(err)) from err
    return 0


def _write(layout: Layout, deadline_at: float) -> None:
    """Replace the deadline in machine.json, and keep everything else, also what only other versions know."""
    content = json.loads(layout.machine_file.read_bytes())
    content[_DEADLINE] = deadline_at
    write_atomically(layout.machine_file, json.dumps(content).encode() + b"\n", durable=True)
