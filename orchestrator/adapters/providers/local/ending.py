"""Ends a local machine: first its processes, then its folders.

The machine's agent runs it as a program (`python -m ...local.ending ROOT`) to end its own machine.
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

from orchestrator.adapters.host.files import make_folder
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.adapters.providers.local.processes import end_processes, find_processes


def end_local_machine(
    folder: MachineFolder, sockets: Path, pause: Callable[[float], None], spare: Collection[int]
) -> list[psutil.Process]:
    """End a machine's processes and remove its folders; the folder that its command ran in is moved and kept.

    Returns:
        The processes that couldn't be ended; if there are any, the folders stay.
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
    """Do the same, but leave the folder with only the note that the machine is ending.

    The note is removed last: a half removed machine must not look like a half created one.
    """
    known = folder.known()
    with contextlib.suppress(OSError):  # a full disk must not keep a machine alive
        folder.write("ending", {})
    left = end_processes(lambda: find_processes(folder.marker, known | folder.known(), spare), pause)
    if not left:
        remove_tree(sockets)
        if keeps_working:
            _keep_working(folder)
        for child in _children(folder.root):
            if child != folder.ending_file:
                remove_tree(child)
    return left


def _keep_working(folder: MachineFolder) -> None:
    """Move the folder that the command ran in out of the machine, so that the user can look at its files.

    Links into the machine are removed: their targets are among the results, or were data sent to the machine.
    """
    working = folder.working
    if working is None or not _has_content(working):
        return
    with contextlib.suppress(OSError):  # a convenience, which must not keep a machine alive
        make_folder(folder.kept_working.parent)
        remove_tree(folder.kept_working)
        working.rename(folder.kept_working)
        for base, folders, files in os.walk(folder.kept_working):
            for link in (Path(base, name) for name in (*folders, *files)):
                if link.is_symlink() and link.readlink().is_relative_to(folder.root):
                    link.unlink()


def _has_content(working: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(working.iterdir())
    return False


def remove_tree(path: Path) -> None:
    """Remove a file, or a folder with its contents, including read-only folders; links aren't followed."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        return
    for base, folders, _ in os.walk(path):
        for name in folders:
            _open_up(Path(base, name))
    shutil.rmtree(path, ignore_errors=True)


def _open_up(folder: Path) -> None:
    with contextlib.suppress(OSError):  # gone meanwhile, or another user's: the caller reports what stays
        if not folder.is_symlink() and folder.stat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
            folder.chmod(stat.S_IRWXU)


def _children(root: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(root.iterdir())
    return []


def main() -> int:
    """Ask init to end the machine; end it here if init is dead."""
    folder = MachineFolder(Path(sys.argv[1]))
    init = folder.init()
    if init is not None:
        os.kill(init.pid, signal.SIGTERM)
        return 0
    facts = folder.facts()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the caller is about to end, and its session with it
    sockets = Path(facts.sockets) if facts else folder.root / "sockets"
    return int(bool(end_local_machine(folder, sockets, _pause, {os.getpid()})))


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    sys.exit(main())
