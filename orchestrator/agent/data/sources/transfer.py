"""Downloads files: several at a time, resumed after an interruption, and verified if a checksum is known."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from ...base.errors import AgentError
from ...base.record import Record
from ...s3.retry import RetryBudget
from .draft import PartialFile, SourceDraft
from .transfer_progress import TransferProgress

_CHUNK_BYTES = 1 << 20
_WORKERS = 8


class Body(NamedTuple):
    """The body of a response that is being read.

    Attributes:
        start: the offset of its first byte in the file; 0 if the server starts over.
        total: the file's size; None if the server doesn't tell.
        tag: identifies this version of the content; empty if the server doesn't tell.
        read: returns at most this many bytes, none at the end.
    """

    start: int
    total: int | None
    tag: str
    read: Callable[[int], bytes]


Opener = Callable[[int, str], AbstractContextManager[Body]]
"""Requests a file from an offset on, if it still has this tag."""


class Checksum(NamedTuple):
    """The checksum that a file must have.

    Attributes:
        kind: `sha256`, or `git` for git's blob hash.
    """

    kind: str
    digest: str


class Wanted(Record):
    """One file to download.

    Attributes:
        path: relative to the target.
        bytes: its size; None if unknown before the download.
        modified: Unix seconds, by which an existing file is recognised as the wanted one.
    """

    path: str
    open: Opener
    bytes: int | None = None
    modified: float | None = None
    checksum: Checksum | None = None


class Transfer:
    """Downloads the files of one source into its draft.

    Args:
        draft: the folder to download to.
        progress: counts files and bytes.
        budget: makes the retry budget for one file.
    """

    def __init__(self, draft: SourceDraft, progress: TransferProgress, budget: Callable[[], RetryBudget]) -> None:
        self._draft = draft
        self._progress = progress
        self._budget = budget
        self._is_lost = threading.Event()

    def download_all(self, wanted: Sequence[Wanted]) -> None:
        """Download all files; the first failure ends it, and partial files stay for the next attempt.

        Raises:
            AgentError: the disk is too small, or a file fails its checksum.
            OSError: a file can't be downloaded.
        """
        total = sum(file.bytes or 0 for file in wanted)
        missing = [file for file in wanted if not self._is_here(file)]
        self._progress.expect(size=total, files=len(wanted))
        self._draft.require_room(sum((file.bytes or 0) - self._draft.part(file.path).size for file in missing))
        with ThreadPoolExecutor(min(_WORKERS, max(1, len(missing)))) as pool:
            futures = [pool.submit(self.download, file) for file in missing]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._is_lost.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for future in done:
                future.result()

    def download(self, file: Wanted) -> tuple[Path, str]:
        """Download one file, and return its path and its tag.

        Raises:
            AgentError: the disk is full, or the file fails its checksum.
            OSError: it can't be downloaded.
        """
        part = self._draft.part(file.path)
        self._progress.keep(part.size)
        budget = self._budget()
        while not part.is_whole:
            try:
                self._go_on(file, part, budget)
                break
            except OSError as err:
                budget.wait(err)
            except HTTPException as err:
                budget.wait(ConnectionError(f"the connection broke off: {err!r}"))
        _verify(file, part)
        tag, target = part.tag, self._draft.place(file.path)
        part.finish(target, file.modified)
        self._progress.add_file()
        return target, tag

    def _is_here(self, file: Wanted) -> bool:
        try:
            seen = self._draft.place(file.path).stat()
        except OSError:
            return False
        if file.bytes not in (None, seen.st_size) or file.modified not in (None, seen.st_mtime):
            return False
        self._progress.keep(seen.st_size)
        self._progress.add_file()
        return True

    def _go_on(self, file: Wanted, part: PartialFile, budget: RetryBudget) -> None:
        """Resume where the last connection broke; start over if there is no tag to identify the content."""
        with file.open(part.size if part.tag else 0, part.tag) as body:
            if body.start != part.size or not part.tag:
                self._progress.keep(-part.size)
                total = file.bytes if body.total is None else body.total
                self._draft.require_room(total or 0)
                part.begin(body.tag, total)
            while chunk := body.read(_CHUNK_BYTES):
                if self._is_lost.is_set():
                    raise AgentError("cancelled, because another file can't be downloaded")
                part.append(chunk)
                self._progress.add(len(chunk))
                budget.renew()
        if part.total is not None and part.size < part.total:
            raise ConnectionError(f"the connection broke off after {part.size:,} of {part.total:,} bytes")


def _verify(file: Wanted, part: PartialFile) -> None:
    if file.bytes not in (None, part.size):
        size = part.size
        part.discard()
        raise AgentError(f"{file.path} has {size:,} bytes instead of {file.bytes:,}", fix="start again")
    if file.checksum is None:
        return
    found = _digest(part, file.checksum.kind)
    if found != file.checksum.digest.lower():
        part.discard()
        raise AgentError(
            f"{file.path} has the wrong checksum",
            why=f"its {file.checksum.kind} checksum is {found}, not {file.checksum.digest}",
            fix="correct the checksum if the file was replaced on purpose",
        )


def _digest(part: PartialFile, kind: str) -> str:
    named_by_git = hashlib.sha1(b"blob %d\0" % part.size, usedforsecurity=False)
    hashed = named_by_git if kind == "git" else hashlib.sha256()
    for chunk in part.chunks():
        hashed.update(chunk)
    return hashed.hexdigest()
