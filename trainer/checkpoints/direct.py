"""Large files past the page cache (O_DIRECT), where system and file system have it.

500 MB through the cache and fsync take 1.9 s, and more than half of the speed of the training beside them; past it
0.35 s and a tenth (seen on a virtual disk with two cores). Few and large calls, because each one that ends has to wait
for the interpreter's lock, and makes the training wait: what begins at a page is written from where it is, the rest
is gathered in aligned memory first.
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
# A page, and a multiple of every disk's block.
PAGE_BYTES = 4096
_O_DIRECT = getattr(os, "O_DIRECT", 0)  # macOS has none


class DirectStream(io.RawIOBase):
    """A file that is written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = _open(path)
        # Anonymous mappings begin at a page: direct writes need aligned memory.
        self._chunk = np.frombuffer(mmap.mmap(-1, CHUNK_BYTES), dtype=np.uint8)
        self._filled = 0

    def fileno(self) -> int:
        """Return the descriptor, for fsync."""
        return self._descriptor

    def writable(self) -> bool:
        """Say so."""
        return True

    def write(self, data: Any, /) -> int:
        """Take all of a contiguous buffer."""
        source = np.frombuffer(data, dtype=np.uint8)
        done = self._write_from_where_it_is(source)
        while done < len(source):
            count = min(CHUNK_BYTES - self._filled, len(source) - done)
            # NumPy lets Python's other threads run meanwhile.
            np.copyto(self._chunk[self._filled : self._filled + count], source[done : done + count])
            self._filled += count
            done += count
            if self._filled == CHUNK_BYTES:
                self._write_chunk()
        return done

    def flush(self) -> None:
        """Write what is left over; nothing may follow, because only whole blocks are written directly."""
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

    def _write_from_where_it_is(self, source: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
        """Write the whole pages of a large buffer, where it and the file's end are aligned; return how many bytes."""
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
    """Open a new file for writing, directly where that is possible."""
    with DirectStream(path) as stream:
        yield cast("BinaryIO", stream)


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with suppress(OSError):  # where this isn't the reason, the next one says what is
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
    # A file system that opens a file so, but has other rules for what it takes.
    _end_direct(descriptor)
    return os.write(descriptor, data)


def _end_direct(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_O_DIRECT)
