"""End a local machine: its processes, then its folders.

As a program (`python -m ...local.ending ROOT`) it is what the machine's agent calls to end its own machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from orchestrator.adapters.files import make_folder
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.adapters.providers.local.processes import end_processes, find_processes


def end_machine(
    folder: MachineFolder, sockets: Path, pause: Callable[[float], None], spare: Collection[int]
) -> list[psutil.Process]:
    """End a machine's processes and remove its folders, but for the one that its command ran in, which is moved.

    Returns:
        The processes that couldn't be ended; the folders stay where there are any.
    """
    left = clear_machine(folder, sockets, pause, spare, keeps_working=True)
    if not left:
        remove_tree(folder.root)
    return left


def clear_machine(
    folder: MachineFolder,
    sockets: Path,
    pause: Callable[[float], None],
    spare: Collection[int],
    *,
    keeps_working: bool = False,
) -> list[psutil.Process]:
    """Do the same, but leave the folder, with nothing in it but the note that the machine is ending.

    The note goes last: half removed, a machine mustn't look like one half made.
    """
    known = folder.known()
    with contextlib.suppress(OSError):  # a full disk must not keep a machine alive
        folder.write("ending", {})
    left = end_processes(lambda: find_processes(folder.mark, known | folder.known(), spare), pause)
    if not left:
        remove_tree(sockets)
        if keeps_working:
            _keep_working(folder)
        for child in _children(folder.root):
            if child != folder.ending:
                remove_tree(child)
    return left


def _keep_working(folder: MachineFolder) -> None:
    """Move the folder that the command ran in out of the machine, where a user can look at what it wrote.

    Links that lead into the machine go: what they led to is among the results, or was data that was sent.
    """
    working = folder.working
    if working is None or not _has_content(working):
        return
    with contextlib.suppress(OSError):  # it is a service to the user, and keeps no machine alive
        make_folder(folder.stays.parent)
        remove_tree(folder.stays)
        working.rename(folder.stays)
        for base, folders, files in os.walk(folder.stays):
            for link in (Path(base, name) for name in (*folders, *files)):
                if link.is_symlink() and link.readlink().is_relative_to(folder.root):
                    link.unlink()


def _has_content(working: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(working.iterdir())
    return False


def remove_tree(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, read-only folders too; links aren't followed."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        return
    for base, folders, _ in os.walk(path):
        for name in folders:
            _open_up(Path(base, name))
    shutil.rmtree(path, ignore_errors=True)


def _open_up(folder: Path) -> None:
    with contextlib.suppress(OSError):  # gone meanwhile, or another user's: what can't be removed is reported
        if not folder.is_symlink() and folder.stat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
            folder.chmod(stat.S_IRWXU)


def _children(root: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(root.iterdir())
    return []


def main() -> int:
    """Ask init to end the machine, or do it where init is dead."""
    folder = MachineFolder(Path(sys.argv[1]))
    init = folder.init()
    if init is not None:
        os.kill(init.pid, signal.SIGTERM)
        return 0
    facts = folder.facts()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever called is about to end, and its session with it
    sockets = Path(facts.sockets) if facts else folder.root / "sockets"
    return int(bool(end_machine(folder, sockets, _pause, {os.getpid()})))


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    sys.exit(main())
