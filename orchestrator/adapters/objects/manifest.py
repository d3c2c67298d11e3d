"""The list of one run's results, as the agent ships it: `<run id>/manifest.json`."""

from __future__ import annotations

import re

import msgspec

from orchestrator.core.decoding import Instant, Name
from orchestrator.core.errors import BadRequestError
from orchestrator.core.report import Command

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ShippedFile(msgspec.Struct, frozen=True):
    """One result, as the machine named it: a bad one costs that file alone, when it is copied.

    Attributes:
        mtime: Unix seconds.
        link: where it points, for a link to another of the results.
    """

    path: str
    bytes: int
    sha256: str
    mtime: float
    link: str = ""

    @property
    def has_content(self) -> bool:
        """Its checksum is one, and so names a blob."""
        return _SHA256.fullmatch(self.sha256) is not None


class Manifest(msgspec.Struct, frozen=True):
    """What a run's machines had shipped at one instant, in Unix seconds."""

    time: Instant = 0.0
    machine: Name = ""
    command: Command = msgspec.field(default_factory=Command)
    files: tuple[ShippedFile, ...] = ()


def run_key(run_id: str, name: str) -> str:
    """Return the key of one of a run's objects.

    Raises:
        BadRequestError: the id would lead elsewhere.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise BadRequestError(f"{run_id!r} is no run's id", fix="take one that `kedge status` shows")
    return f"{run_id}/{name}"
