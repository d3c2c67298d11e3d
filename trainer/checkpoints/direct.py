"""Writes large files past the page cache (O_DIRECT), where the file system supports it.

Writing 500 MB through the cache with fsync takes 1.9 s and slows training down by more than half meanwhile; with
O_DIRECT it takes 0.35 s and slows training down by a tenth (measured on a virtual disk with two cores). Calls are few
and large, because after each one the thread waits for the GIL, and makes training wait: page-aligned data is written
without a copy, the rest is first copied to an aligned buffer.
"""

import errno
import fcntl
import io
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

CHUNK_BYTES = 4 << 20
# A page, which is a multiple of every disk's block size.
PAGE_BYTES = 4096
_O_DIRECT = getattr(os, "O_DIRECT", 0)  # macOS has none


class DirectStream(io.RawIOBase):
    """A write-only stream: sequential writes, no seek."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = _open(path)
        # Direct writes need aligned memory; an anonymous mapping is page-aligned.
        self._chunk = np.frombuffer(mmap.mmap(-1, CHUNK_BYTES), dtype=np.uint8)
        self._filled = 0

    def fileno(self) -> int:
        """Return the descriptor, for fsync."""
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write all of a contiguous buffer."""
        source = np.frombuffer(data, dtype=np.uint8)
        done = self._write_zero_copy(source)
        while done < len(source):
            count = min(CHUNK_BYTES - self._filled, len(source) - done)
            # NumPy releases the GIL while it copies.
            np.copyto(self._chunk[self._filled : self._filled + count], source[done : done + count])
            self._filled += count
            done += count
            if self._filled == CHUNK_BYTES:
                self._write_chunk()
        return done

    def flush(self) -> None:
        """Write the rest; no write may follow, because only whole blocks are written directly."""
        if self._filled:
            _end_direct(self._descriptor)
            self._write_chunk()

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            try:
                super().close()
            finally:
                os.close(self._descriptor)

    def _write_zero_copy(self, source: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
        """Write the whole pages of a large buffer if it and the file's end are aligned; return how many bytes."""
        if len(source) < CHUNK_BYTES or source.ctypes.data % PAGE_BYTES or self._filled % PAGE_BYTES:
            return 0
        self._write_chunk()
        whole = len(source) // PAGE_BYTES * PAGE_BYTES
        _write_all(self._descriptor, source[:whole].data)
        return whole

    def _write_chunk(self) -> None:
        filled, self._filled = self._filled, 0
        _write_all(self._descriptor, self._chunk[:filled].data)


@contextmanager
def open_direct(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing, with O_DIRECT where possible."""
    with DirectStream(path) as stream:
        yield cast("BinaryIO", stream)


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with suppress(OSError):  # if O_DIRECT isn't the reason, the next open raises the real one
        return os.open(path, flags | _O_DIRECT, 0o666)
    return os.open(path, flags, 0o666)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[_write(descriptor, data) :]


def _write(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except OSError as err:
        if err.errno != errno.EINVAL:
            raise
    # Some file systems open a file with O_DIRECT, but have stricter alignment rules.
    _end_direct(descriptor)
    return os.write(descriptor, data)


def _end_direct(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_O_DIRECT)
