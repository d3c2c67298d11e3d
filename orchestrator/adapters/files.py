"""Files that other commands may read at any instant."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole: a reader sees the old content or the new, never a part.

    Missing folders are made for the user alone. It isn't synced to the disk: what is kept this way can be had
    again.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(aside).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(aside).unlink()
        raise
