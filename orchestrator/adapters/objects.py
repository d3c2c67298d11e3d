"""A folder as the object store: what a run's machines shipped, read back.

`<root>/<run id>/manifest.json` names the files of the newest complete copy, `<root>/<run id>/blobs/<sha256>` holds
their contents. The agent writes both; the manifest goes last.
"""

from __future__ import annotations

import hashlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import msgspec

from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.ports import Progress
from orchestrator.core.report import Command, ResultFile

_CHUNK = 1 << 20
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMED = 3
_CLOCK_STEP = 0.01  # seconds: file systems round times


class _File(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    sha256: str
    mtime: float
    link: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    time: float = 0.0
    command: Command = msgspec.field(default_factory=Command)
    files: tuple[_File, ...] = ()


class FolderStore:
    """The results of runs, in a folder that every local machine can reach."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""
        return self._root.as_uri()

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped, empty for none.

        Raises:
            KedgeError: the manifest can't be read.
        """
        manifest = self._read(run_id)
        return tuple(
            ResultFile(path=file.path, bytes=file.bytes, sha256=file.sha256)
            for file in (manifest.files if manifest else ())
        )

    def command(self, run_id: str) -> Command | None:
        """Return the command's life as it was shipped last; None where nothing was."""
        manifest = self._read(run_id)
        return manifest.command if manifest else None

    def shipped_at(self, run_id: str) -> datetime | None:
        """Return when the agent last shipped; None where it never did."""
        manifest = self._read(run_id)
        return datetime.fromtimestamp(manifest.time, UTC) if manifest else None

    def read_text(self, run_id: str, path: str) -> str:
        """Return one shipped text file, such as `run.log`; empty where it isn't there."""
        files = getattr(self._read(run_id), "files", ())
        blob = next((file.sha256 for file in files if file.path == path and _SHA256.fullmatch(file.sha256)), None)
        return (self._folder(run_id) / "blobs" / blob).read_text(errors="replace") if blob else ""

    def fetch(self, run_id: str, destination: str, progress: Progress) -> None:
        """Copy the shipped results into a folder: each whole and verified, or not at all.

        What is there already with the same content stays as it is.

        Raises:
            KedgeError: some couldn't be copied; all the others were.
        """
        files = getattr(self._read(run_id), "files", ())
        blobs = self._folder(run_id) / "blobs"
        total, done = sum(file.bytes for file in files), 0
        problems = []
        for file in sorted(files, key=lambda file: bool(file.link)):
            try:
                _fetch_file(file, blobs, Path(destination))
            except (OSError, ValueError) as err:
                problems.append(f"{file.path!r}: {err}")
            done += file.bytes
            progress(done, total)
        if problems:
            raise _incomplete(problems, len(files))

    def _folder(self, run_id: str) -> Path:
        if not _RUN_ID.fullmatch(run_id):
            raise BadRequestError(f"{run_id!r} is no run's id", fix="take one that `kedge status` shows")
        return self._root / run_id

    def _read(self, run_id: str) -> _Manifest | None:
        path = self._folder(run_id) / "manifest.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Manifest)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as err:
            raise KedgeError(
                f"the list of run {run_id}'s results can't be read",
                why=str(err),
                fix=f"look at {path}; the files themselves lie beside it in blobs/",
            ) from err


def _fetch_file(file: _File, blobs: Path, destination: Path) -> None:
    """Copy one file.

    Raises:
        ValueError: its path leads elsewhere, or its content is missing or damaged.
        OSError: it can't be written.
    """
    target = _target(file, destination)
    if _is_newer(target, file):
        return
    if file.link:
        _link(file, target, destination)
        return
    if not _is_there(file, target):
        _copy(file, blobs, target)
    os.utime(target, (file.mtime, file.mtime))


def _target(file: _File, destination: Path) -> Path:
    parts = PurePosixPath(file.path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in file.path:
        raise ValueError("its path leads out of the results")
    target = destination.joinpath(*parts)
    if not target.parent.resolve().is_relative_to(destination.resolve()):
        raise ValueError("a link leads it out of the results")
    return target


def _is_newer(target: Path, file: _File) -> bool:
    """What was fetched from the machine itself may be newer than what it had shipped by then."""
    return target.is_file() and not target.is_symlink() and target.stat().st_mtime > file.mtime + _CLOCK_STEP


def _link(file: _File, target: Path, destination: Path) -> None:
    """Make a link again that leads to another of the results."""
    if not (target.parent / file.link).resolve().is_relative_to(destination.resolve()):
        raise ValueError("it is a link that leads out of the results")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(file.link)


def _is_there(file: _File, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def _copy(file: _File, blobs: Path, target: Path) -> None:
    if not _SHA256.fullmatch(file.sha256):
        raise ValueError(f"{file.sha256!r} is no checksum")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{file.sha256[:16]}.part")
    aside.unlink(missing_ok=True)
    try:
        if _copy_content(blobs / file.sha256, aside) != file.sha256:
            raise ValueError(f"its content, blob {file.sha256}, is damaged")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _copy_content(blob: Path, aside: Path) -> str:
    """Copy a blob, and return the checksum of what was written."""
    digest = hashlib.sha256()
    try:
        content = blob.open("rb")
    except FileNotFoundError:
        raise ValueError(f"its content, blob {blob.name}, is missing") from None
    with content, aside.open("xb") as out:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _incomplete(problems: list[str], count: int) -> KedgeError:
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return KedgeError(
        f"{len(problems)} of {count} results can't be copied; the others were",
        why="; ".join(problems[:_NAMED]) + more,
        fix="fetch again while the machine that made them still runs, or go without them",
    )
