"""What the agents of a group's machines say to each other, in the order in which it is said.

The head listens on the task's port at its private address, before the command starts.

    head     {"challenge"}                              a random number; these two only if the run has a token
    machine  {"challenge", "proof"}                     another one, and that it knows the token (proof.py)
    head     {"run", "task", "proof"}                   who listens here; nothing more is sent to anybody else
    machine  {"rank", "port", "is_new"} and a Start     what it can start from; or {"rank", "failed"}: it won't come
    head     {"load": true}                             the machine sends a load over this connection
    head     {"reverse": true}                          the head sends one to the machine's port
    machine  {"gbit_per_second"}                        what arrived
    head     {"go": true} and a Start                   all are there, and start from this; or {"refused": why}

The connection stays open while the command runs. Whoever's command ends says how; a connection that breaks says it too.

    both     {"ready": true}                            it has the whole checkpoint; the head says so when all have it
    both     {"succeeded": true}, {"stopped": reason}, or {"failed": why, "left": attempts that are left,
              "lost": whether it has failed because it has lost a machine}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SLOW_GBIT_PER_SECOND = 1.0
TICK_SECONDS = 0.25
NAMED_AFTER_SECONDS = 5.0
"""After how long a machine that is missing is named in the log."""


class GatheringError(Exception):
    """The machines did not meet; the text says which is missing, or what is in the way.

    Attributes:
        is_final: another attempt wouldn't help.
    """

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


class Hooks(NamedTuple):
    """The runner, as its machines' meeting needs it.

    Attributes:
        tell: adds a line to the log.
        wait: turns the state to waiting for what the text says.
        is_unwanted: whether the run was asked to stop.
        stop: asks for it, with a reason.
        abort: ends this attempt, with a reason.
    """

    tell: Callable[[str], None]
    wait: Callable[[str], None]
    is_unwanted: Callable[[], bool]
    stop: Callable[[str], None]
    abort: Callable[[str], None]


def describe(error: OSError) -> str:
    """Return an error's reason in words."""
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
