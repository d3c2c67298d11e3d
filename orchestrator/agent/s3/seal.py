"""Seals objects that a run's machines pass to one another through the store: an HMAC with a secret of the run.

A pin can't be used, because the laptop doesn't see these objects. If a machine was given the bucket's keys, others may
have them too, so a secret of the run comes with the keys. With a role no secret is needed, because only the run's own
machines can use it, unless all runs of the account share the role.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

from ..base.errors import AgentError
from ..base.wire import MachineConfig

BYTES = 32
_CHUNK_BYTES = 1 << 20


class NoSealError(AgentError):
    """Others can write to the run's prefix, and this machine has no secret to recognise its own objects."""


def read_seal(machine: MachineConfig) -> bytes:
    """Return the run's secret; empty if only the run's machines and its user can write to its prefix.

    Raises:
        NoSealError: others can, and there is no secret.
        OSError: the keys file can't be read.
    """
    if not machine.store_url.startswith("s3://"):
        return b""
    from .client import parse_s3_url  # noqa: PLC0415 - HTTP and TLS are on nobody else's way
    from .imds import load_object  # noqa: PLC0415

    if "shared" in parse_qs(urlsplit(machine.store_url).query):
        raise NoSealError("all runs of this account share one role")
    keys = parse_s3_url(machine.store_url).keys
    if not keys:
        return b""
    seal = str(load_object(Path(keys).read_text()).get("seal", ""))
    if not seal:
        raise NoSealError("the machine has no secret of its run")
    return seal.encode()


def sealed(seal: bytes, key: str, content: IO[bytes]) -> Iterator[bytes]:
    """Yield an object's bytes: the seal, then the content."""
    yield _sum(seal, key, content)
    yield from _chunks(content)


def open_sealed(seal: bytes, key: str, copy: IO[bytes]) -> None:
    """Verify a downloaded copy's seal, and leave the file at the start of the content.

    Raises:
        AgentError: it wasn't made by one of the run's own machines, or is damaged.
    """
    copy.seek(0)
    said = copy.read(BYTES)
    if not hmac.compare_digest(said, _sum(seal, key, copy)):
        raise AgentError("they were not made by one of the run's machines")
    copy.seek(BYTES)


def _sum(seal: bytes, key: str, content: IO[bytes]) -> bytes:
    """Compute the HMAC of the rest of a stream and of the object's key, so that objects can't be swapped."""
    start = content.tell()
    summed = hmac.new(seal, key.encode() + b"\0", hashlib.sha256)
    for chunk in _chunks(content):
        summed.update(chunk)
    content.seek(start)
    return summed.digest()


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: content.read(_CHUNK_BYTES), b"")
