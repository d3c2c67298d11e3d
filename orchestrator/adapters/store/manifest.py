"""The list of one machine's results, as the agent uploads it: `<run id>/manifest.json`, for the run's head."""

from __future__ import annotations

import re

import msgspec

from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.decoding import Count, Instant, Name
from orchestrator.core.protocol.report import Command, ModeReport

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class UploadedFile(msgspec.Struct, frozen=True):
    """One result, as the machine described it, unverified: an invalid entry only fails the copy of that file.

    Attributes:
        mtime: Unix seconds.
        link: the target, for a link to another result.
    """

    path: str
    bytes: int
    sha256: str
    mtime: float
    link: str = ""

    @property
    def has_content(self) -> bool:
        """Whether its checksum is well-formed, so that it names a blob."""
        return _SHA256.fullmatch(self.sha256) is not None


class UploadedTask(msgspec.Struct, frozen=True):
    """A task with a name, as it was at the time of the upload."""

    command: Command = msgspec.field(default_factory=Command)


class ResultsManifest(msgspec.Struct, frozen=True):
    """The results that a run's machines had uploaded at one time, in Unix seconds."""

    time: Instant = 0.0
    machine: Name = ""
    command: Command = msgspec.field(default_factory=Command)
    tasks: dict[Name, UploadedTask] = msgspec.field(default_factory=dict)
    sequence: Count = 0
    earlier: tuple[ModeReport, ...] = ()
    files: tuple[UploadedFile, ...] = ()


def run_key(run_id: str, name: str) -> str:
    """Return the key of one of a run's objects.

    Raises:
        BadRequestError: the id is invalid, and could lead out of the run's folder.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise BadRequestError(f"{run_id!r} is not the id of a run", fix="take one that `kedge status` shows")
    return f"{run_id}/{name}"


def place_of(rank: int) -> str:
    """Return the place of a machine's results in those of its run, with a slash at its end; the head's is empty."""
    return f"nodes/{rank}/" if rank else ""
