"""Is a JPEG or PNG file whole? Told by its first and last bytes, without decoding it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

_TAIL = 4096
"""Cameras and programs add a few bytes after the end marker; zeros may fill a block."""
_KINDS = (
    # ISO/IEC 10918-1, annex B.1.1.3: start and end of image.
    ("JPEG", b"\xff\xd8\xff", b"\xff\xd9"),
    # ISO/IEC 15948, sections 5.2 and 11.2.5: the signature, and the type and checksum of the last chunk.
    ("PNG", b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
)


def find_picture_problem(path: Path) -> tuple[str, str] | None:
    """Return the kind of a picture's problem, and what is wrong; None if nothing is."""
    try:
        with path.open("rb") as stream:
            return find_stream_problem(stream, 0, os.fstat(stream.fileno()).st_size)
    except OSError as err:
        return "unreadable", err.strerror or type(err).__name__


def find_stream_problem(stream: BinaryIO, begin: int, size: int) -> tuple[str, str] | None:
    """Do the same for `size` bytes of a file from `begin` on.

    Raises:
        OSError: they can't be read.
    """
    if not size:
        return "truncated", "it is empty"
    stream.seek(begin)
    head = stream.read(min(size, 16))
    for name, magic, end in _KINDS:
        if not head.startswith(magic):
            continue
        stream.seek(begin + max(0, size - _TAIL))
        is_whole = end in stream.read(min(size, _TAIL))
        return None if is_whole else ("truncated", f"the end of the {name} is missing after {size:,} bytes")
    return "unreadable", f"neither JPEG nor PNG: it begins with {head[:8].hex(' ')}"
