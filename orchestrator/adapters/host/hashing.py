"""The SHA-256 of files that needn't fit into memory."""

from __future__ import annotations

import hashlib
from typing import IO

_CHUNK = 1 << 20


def sha256_of(file: IO[bytes], most: int | None = None) -> str:
    """Hash a file from its current position, as hex.

    Args:
        file: read to its end, or up to `most` bytes.
        most: bytes; None for all.
    """
    digest = hashlib.sha256()
    left = most
    while left != 0 and (chunk := file.read(_CHUNK if left is None else min(_CHUNK, left))):
        digest.update(chunk)
        left = None if left is None else left - len(chunk)
    return digest.hexdigest()
