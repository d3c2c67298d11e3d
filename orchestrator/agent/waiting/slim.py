"""A runner that only waits for its command: it takes a quarter of the memory of one that prepares an attempt.

Once a command has run for a while, its runner replaces its own program by this one. The process stays the same: its
id, its supervisor, its children, its lock. At the first event (the command has ended, or has to end) it imports the
rest of the runner again, which goes on with the attempt. Signals that come between two programs are held back.

It imports only what needs no module that takes memory, such as `re` or `pathlib`; tests/agent/test_slim.py checks that.
"""

from __future__ import annotations

import os
import sys

from ..base.runlog import RunLog
from .leader import Leader
from .pump import Echo, Pump
from .signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..base.config import TaskContext

_BEGUN_BYTES = 32 * 1024
"""How much of an incomplete line can be passed on: it has to fit into a pipe."""
_START = "import sys; sys.path.insert(0, sys.argv[2]); __import__(sys.argv[3] + '.waiting.slim').waiting.slim.main()"


def become_slim(leader: Leader, signals: Signals, lock: int, task: TaskContext) -> None:
    """Replace this process's program by the slim one; return only if that isn't possible now.

    Args:
        leader: the running command.
        signals: the installed handlers.
        lock: the descriptor of the runner's lock, which stays held.
        task: the task.
    """
    pump = leader.pump
    if not pump.is_whole or len(pump.begun) > _BEGUN_BYTES:
        return
    try:
        read_end, write_end = os.pipe()
    except OSError:
        # The command must go on, whatever this process lacks.
        return
    os.write(write_end, pump.begun)
    os.close(write_end)
    kept = (pump.descriptor, lock, read_end)
    folder, _, package = __file__[: -len("/waiting/slim.py")].rpartition("/")
    numbers = ",".join(map(str, (leader.pid, *kept)))
    verb = [str(task.layout.launcher), "run", *(["--task", task.config.name] if task.config.name else [])]
    paths = [folder, package, str(task.layout.root), str(task.task.log_file)]
    argv = [sys.executable, "-IS", "-c", _START, numbers, *paths, *verb]
    signals.hold()
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    try:
        if not signals.is_called:
            os.execv(sys.executable, argv)  # noqa: S606 - no shell is wanted
    except OSError:
        # There is no memory for it at this moment.
        pass
    for descriptor in kept[:2]:
        os.set_inheritable(descriptor, False)
    os.close(read_end)
    signals.install()


def main() -> None:
    """Wait for the command, then go on as a whole runner."""
    pid, pipe, lock, rest = map(int, sys.argv[1].split(","))
    root, log, name = sys.argv[4], sys.argv[5], "".join(sys.argv[9:10])
    signals = Signals()
    signals.install()
    begun = os.read(rest, _BEGUN_BYTES)
    os.close(rest)
    os.set_inheritable(pipe, False)
    os.set_inheritable(lock, False)
    leader = Leader(pid, Pump(pipe, RunLog(lambda: log), Echo(), begun))
    leader.wait(signals)
    import importlib  # noqa: PLC0415 - it takes memory, and isn't needed before

    # By its name, because it is above this package.
    entry = importlib.import_module(f"{sys.argv[3]}.run.entry")
    sys.exit(entry.go_on(root, name, leader, signals, lock))
