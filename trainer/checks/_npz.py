"""Arrays in .npz archives, without NumPy: their headers, and streams of their data. Nothing in them is trusted."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trainer.checks._npy import NpyHeader, read_npy_header

_ZIP_MAGIC = b"PK\x03\x04"
_NUMPYS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What NumPy writes; decoders of other compressions raise errors of their own."""
_ERRORS = (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


class UnreadableArrayError(ValueError):
    """An array can't be read, or isn't what is needed; `kind` is that of the finding."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@contextmanager
def open_npz(path: Path, name: str) -> Iterator[tuple[NpyHeader, IO[bytes]]]:
    """Open one array of an .npz archive: its header, and a stream of its data. What the caller reads is checked too.

    Raises:
        UnreadableArrayError: the archive is damaged, has no such array, or another size of it than its header says.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member := _find_member(archive, name)) as stream:
            header = read_npy_header(stream)
            _require_size(header, member.file_size)
            yield header, stream
    except UnreadableArrayError:
        raise
    except _ERRORS as err:
        raise UnreadableArrayError(*_explain(path, err)) from err


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """Read so many bytes; a directory of a zip file may promise more than there are.

    Raises:
        UnreadableArrayError: there are fewer.
    """
    content = stream.read(count)
    if len(content) < count:
        raise UnreadableArrayError("truncated", "it ends within the data")
    return content


def _find_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    names = archive.namelist()
    if f"{name}.npy" in names:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type not in _NUMPYS:
            why = "is compressed in a way that NumPy does not write: save it with savez_compressed"
            raise UnreadableArrayError("unreadable", f"{name}.npy {why}")
        return member
    there = ", ".join(each.removesuffix(".npy")[:80] for each in names[:4]) or "none"
    raise UnreadableArrayError("missing", f"it has no array {name}, but {there}")


def _require_size(header: NpyHeader, size: int) -> None:
    if size != header.file_bytes:
        raise UnreadableArrayError("truncated", f"{size:,} of {header.file_bytes:,} bytes")


def _explain(path: Path, err: Exception) -> tuple[str, str]:
    """Tell a truncated archive, whose directory at the end is missing, from a file that is none."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(_ZIP_MAGIC))
    except OSError as failure:
        return "unreadable", failure.strerror or type(failure).__name__
    if not start:
        return "truncated", "it is empty"
    if isinstance(err, zipfile.BadZipFile) and start == _ZIP_MAGIC:
        return "truncated", "the end of the archive is missing"
    return "unreadable", str(err) or type(err).__name__
