"""The code releases on the machine: the current one, pruning, and the record of each as it was received."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import Layout

_EMPTY = "empty"
_PREVIOUS = ".previous"
_INCOMING = ".incoming-"


def current(layout: Layout) -> Path | None:
    """Return the current release, or None."""
    if not layout.code.is_symlink():
        return None
    release = layout.releases / layout.code.readlink().name
    return release if release.is_dir() else None


def current_or_empty(layout: Layout) -> Path:
    """Return the current release; make an empty one if there is none."""
    release = current(layout)
    if release is None:
        release = layout.releases / _EMPTY
        release.mkdir(parents=True, exist_ok=True)
        switch(layout, release)
    return release


def code_hash(layout: Layout) -> str:
    """Return the current release's content hash; empty if there is none."""
    release = current(layout)
    return str(read_record(release).get("hash", "")) if release else ""


def free_name(layout: Layout, content_hash: str) -> Path:
    """Return an unused folder for a new release: an older one with the same content may still be in use."""
    release = layout.releases / content_hash
    number = 2
    while os.path.lexists(release):
        release = layout.releases / f"{content_hash}.{number}"
        number += 1
    return release


def record_file(release: Path) -> Path:
    """Return the path of a release's record."""
    return release.with_name(f".{release.name}.json")


def read_record(release: Path) -> dict[str, Any]:
    """Read the record of a release as it was received; empty if there is none."""
    return read_json(record_file(release))


def write_record(release: Path, record: dict[str, Any]) -> None:
    """Write a release's record."""
    write_json(record_file(release), record)


def switch(layout: Layout, release: Path) -> None:
    """Make a release the current one, atomically.

    There is no fsync: after a power cut the code is sent again, and an fsync during the download of a data set may take
    minutes.
    """
    before = current(layout)
    if before is not None:
        _point(layout.releases / _PREVIOUS, Path(before.name))
    _point(layout.code, Path(layout.releases.name) / release.name)


def prune(layout: Layout, *, in_use: Iterable[str]) -> None:
    """Remove all releases except the current one, the one before it, and those that commands are using."""
    links = (layout.code, layout.releases / _PREVIOUS)
    keep = {*map(_owner, in_use), *(link.readlink().name for link in links if link.is_symlink())}
    for entry in list(layout.releases.iterdir()):
        if entry.name != _PREVIOUS and not entry.name.startswith(_INCOMING) and _owner(entry.name) not in keep:
            remove(entry)


@contextmanager
def incoming(layout: Layout) -> Iterator[Path]:
    """Make a folder for an incoming tree; remove it afterwards, unless it has been renamed."""
    folder = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=layout.releases))
    # Locked while this process lives, so that others don't remove the folder.
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        remove(folder)
        os.close(lock)


def sweep_incoming(layout: Layout) -> None:
    """Remove the folders of killed receivers."""
    for folder in layout.releases.glob(f"{_INCOMING}*"):
        lock = _try_lock_folder(folder)
        if lock is not None:
            # An empty folder may have been made just now, and not be locked yet.
            if any(folder.iterdir()):
                remove(folder)
            os.close(lock)


def _owner(name: str) -> str:
    """Return the release that a task's copy of it, or a file beside the releases, belongs to."""
    own = name[1:].removesuffix(".aside").removesuffix(".json") if name.startswith(".") else name
    return own.partition("@")[0]


def _point(link: Path, target: Path) -> None:
    """Change a link's target atomically."""
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _try_lock_folder(folder: Path) -> int | None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def remove(path: Path) -> None:
    """Remove a file, a link or a tree."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def originals(release: Path) -> Callable[[str], str]:
    """Return a function that finds a release's file: in the release, or aside if a link has replaced it."""
    place, aside = str(release), f"{release.parent}/.{release.name}.aside"
    if not os.path.isdir(aside):  # noqa: PTH112 - strings all the way, for thousands of files
        return lambda path: f"{place}/{path}"

    def find(path: str) -> str:
        kept = f"{aside}/{path}"
        return kept if os.path.lexists(kept) else f"{place}/{path}"

    return find


def unshare_files(release: Path) -> None:
    """Break the hard links to the base release, before the first command runs in this one.

    Raises:
        AgentError: an earlier command has changed a shared file, so the code isn't what was sent.
    """
    record = read_record(release)
    if not record or record.get("own"):
        return
    original = originals(release)
    for path, stamp in record["files"].items():
        file = original(path)
        status = os.lstat(file)
        if status.st_nlink == 1:
            continue
        if [status.st_size, status.st_mtime_ns] != stamp[:2]:
            # Clear the current hash, so that the next sync sends the whole tree.
            write_record(release, {**record, "hash": ""})
            raise AgentError(
                f"the code on the machine isn't what was sent: an earlier command changed {path}",
                fix="send it again with `kedge sync-code --restart`",
            )
        temporary = f"{file}.kedge-own"
        shutil.copy2(file, temporary, follow_symlinks=False)
        os.replace(temporary, file)  # noqa: PTH105 - as above
    write_record(release, {**record, "own": True})
