"""Atomic file writes: to a temporary file, fsynced, then renamed, so that a file is whole or absent."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".tmp"
Open = Callable[[Path], AbstractContextManager[BinaryIO]]


def _open(path: Path) -> AbstractContextManager[BinaryIO]:
    return path.open("wb")


def write_atomically(
    path: Path, write: Callable[[BinaryIO], object], *, durable: bool = True, open_stream: Open = _open
) -> None:
    """Write a temporary file, then rename it to `path`.

    Args:
        path: the final name; its folder exists.
        write: puts the content into the open stream.
        durable: fsync file and folder, so that the file survives a power cut.
        open_stream: opens the temporary file.
    """
    # A unique name, so that two processes that write the same file don't share a temporary one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with open_stream(temporary) as stream:
            write(stream)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def remove_temporaries(folder: Path, pattern: str) -> None:
    """Remove the temporary files that a killed process left, for final names that match the pattern."""
    for leftover in folder.glob(f".{pattern}*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
