"""A seal on what a run's machines leave for one another in the store: nobody else with the bucket's keys can make it.

A pin is of no use there, since the laptop doesn't see the object. Where a machine was brought the bucket's keys, others
may have them too: a secret of the run comes with the keys. A role lets in nobody but the run's own machines, unless all
runs of the account share it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

from .errors import AgentError
from .imds import load_object
from .s3client import parse_place
from .wire import MachineConfig

BYTES = 32
_CHUNK_BYTES = 1 << 20


class NoSealError(AgentError):
    """Others write to the run's place in the store, and this machine has nothing to tell its own objects by."""


def read_seal(machine: MachineConfig) -> bytes:
    """Return the run's secret; empty where only the run's machines and its user write to its place.

    Raises:
        NoSealError: others do, and there is no secret.
        OSError: the file with the keys can't be read.
    """
    if not machine.store_url.startswith("s3://"):
        return b""
    if "shared" in parse_qs(urlsplit(machine.store_url).query):
        raise NoSealError("all runs of this account share one role")
    keys = parse_place(machine.store_url).keys
    if not keys:
        return b""
    seal = str(load_object(Path(keys).read_text()).get("seal", ""))
    if not seal:
        raise NoSealError("the machine wasn't brought a secret of its run")
    return seal.encode()


def sealed(seal: bytes, key: str, content: IO[bytes]) -> Iterator[bytes]:
    """Yield an object's bytes: the seal of its content, then the content."""
    yield _sum(seal, key, content)
    yield from _chunks(content)


def open_sealed(seal: bytes, key: str, copy: IO[bytes]) -> None:
    """Compare what was copied with its seal, and leave the copy where its content begins.

    Raises:
        AgentError: another machine than the run's own has made it, or it is damaged.
    """
    copy.seek(0)
    said = copy.read(BYTES)
    if not hmac.compare_digest(said, _sum(seal, key, copy)):
        raise AgentError("none of the run's machines has left them there")
    copy.seek(BYTES)


def _sum(seal: bytes, key: str, content: IO[bytes]) -> bytes:
    """Sum up what follows in a stream, with the object's key: one object can't stand for another."""
    start = content.tell()
    summed = hmac.new(seal, key.encode() + b"\0", hashlib.sha256)
    for chunk in _chunks(content):
        summed.update(chunk)
    content.seek(start)
    return summed.digest()


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: content.read(_CHUNK_BYTES), b"")
