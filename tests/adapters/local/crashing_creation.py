"""Create a machine again and again, each time in a process that is killed one step later.

A step is a system call that changes the world: a file opened for writing, a folder, a rename, a process. Python
reports them to an audit hook, so that the code under test runs as it is. Prints one JSON object for each kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.adapters.local.box import Box

ID = "run-1a2b-m1"
_STEPS = {"os.mkdir", "os.rename", "os.remove", "os.chmod", "subprocess.Popen", "os.posix_spawn", "fcntl.flock"}


def die_at(step: int) -> None:
    """Arrange for SIGKILL just before the given step, counted from 0."""
    done = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        writes = event == "open" and isinstance(args[1], str) and not set(args[1]).isdisjoint("wax+")
        if event in _STEPS or writes:
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1

    sys.addaudithook(hook)


def create_and_die(box: Box, step: int) -> bool:
    """Create a machine in a child process; return whether the child was killed."""
    child = os.fork()
    if not child:
        die_at(step)
        box.provider().create(box.order(ID))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main() -> None:
    box = Box(Path(sys.argv[1]))
    first, stride = int(sys.argv[2]), int(sys.argv[3])
    killed, step = True, first
    while killed:
        killed = create_and_die(box, step)
        left = box.leftovers()
        seen = [machine.id for machine in box.provider().machines()]
        again = box.provider().create(box.order(ID)).state if step % 2 else ""
        box.provider().destroy(ID)
        row = {"step": step, "killed": killed, "left": left, "seen": seen, "again": again}
        print(json.dumps(row | {"after": box.leftovers()}), flush=True)
        step += stride


if __name__ == "__main__":
    main()
