"""Commands that are killed while they create a machine, forked from one process so that each takes milliseconds.

As a program it reads orders from standard input, one JSON object per line. It forks a child for each order, and prints
the child's process id.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

from tests.adapters.digitalocean.world import DoWorld
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.waiting import wait_until


class AheadClock:
    """The box's clock in another process: ahead of the real one by what it was when the command began."""

    def __init__(self, ahead: float) -> None:
        self._ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def sleep(self, duration: timedelta) -> None:
        time.sleep(0.01)
        self._ahead += duration


class Doomed:
    """A process from which commands are forked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def create_and_die(self, world: DoWorld, *, answered: bool = False) -> None:
        """Start a command that creates the run's machine, and kill it after its request arrived and before the answer.

        Args:
            world: the command's laptop and account.
            answered: kill it after the answer instead, while it waits for the creation's action.
        """
        count = world.looks_at_actions if answered else world.posts
        before = count()
        ahead = (world.clock.now() - datetime.now(UTC)).total_seconds()
        said = {"folder": str(world.folder), "environ": world.api.environ, "ahead": ahead}
        commands, answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        commands.write(json.dumps(said) + "\n")
        commands.flush()
        child = int(answers.readline())
        # A command that finds a machine, or may not create one, ends by itself.
        wait_until(lambda: count() > before or not _lives(child))
        if _lives(child):
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: not _lives(child))


@contextmanager
def doomed_commands() -> Iterator[Doomed]:
    """Start the process, and end it afterwards."""
    argv = [sys.executable, "-m", "tests.adapters.digitalocean.doomed"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Doomed(process)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _carry_out(said: dict[str, Any]) -> None:
    box = cast("DigitalOceanBox", SimpleNamespace(environ=said["environ"]))
    world = DoWorld(api=box, folder=Path(said["folder"]), clock=AheadClock(said["ahead"]))
    world.provider().create(world.order())


if __name__ == "__main__":
    # With SIGCHLD ignored, the kernel reaps the children at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    DoWorld(api=cast("DigitalOceanBox", SimpleNamespace(environ={})), folder=Path("unused"), clock=object()).order()
    import pydo  # noqa: F401 - loaded once, for all children

    import orchestrator.adapters.providers.digitalocean.provider  # noqa: F401 - likewise

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                _carry_out(json.loads(line))
            finally:
                os._exit(0)
        print(child, flush=True)
