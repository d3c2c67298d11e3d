"""Bring files here: several at a time, each gone on with where it broke off, and verified where a checksum is known."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from ..errors import AgentError
from ..s3client import Patience
from .draft import Draft, Part
from .tally import Tally

_CHUNK_BYTES = 1 << 20
_WORKERS = 8


class Body(NamedTuple):
    """An answer that is being read.

    Attributes:
        start: where in the file its first byte belongs; 0 where the server begins anew.
        total: bytes of the whole file; None where the server doesn't say.
        tag: tells this content from a later one; empty where nothing does.
        read: returns at most so many bytes, none at the end.
    """

    start: int
    total: int | None
    tag: str
    read: Callable[[int], bytes]


Opener = Callable[[int, str], AbstractContextManager[Body]]
"""Ask for a file from a byte on, if it still has this tag."""


class Checksum(NamedTuple):
    """What a file's content must be.

    Attributes:
        kind: `sha256`, or `git` for the name that git gives to a file's content.
    """

    kind: str
    digest: str


@dataclass(frozen=True)
class Wanted:
    """One file to bring.

    Attributes:
        path: relative to the target.
        bytes: of the whole; None where only the download tells.
        modified: Unix seconds, by which what is here already is told from what is wanted.
    """

    path: str
    open: Opener
    bytes: int | None = None
    modified: float | None = None
    checksum: Checksum | None = None


class Transfer:
    """Bring the files of one source into its draft.

    Args:
        draft: where they grow.
        tally: what is told of it.
        patience: makes the patience for one file.
    """

    def __init__(self, draft: Draft, tally: Tally, patience: Callable[[], Patience]) -> None:
        self._draft = draft
        self._tally = tally
        self._patience = patience
        self._is_lost = threading.Event()

    def bring_all(self, wanted: Sequence[Wanted]) -> None:
        """Bring them all; the first that fails ends it, and what is here stays for the next attempt.

        Raises:
            AgentError: the disk is too small, or a file isn't what it should be.
            OSError: a file can't be had.
        """
        total = sum(file.bytes or 0 for file in wanted)
        missing = [file for file in wanted if not self._is_here(file)]
        self._tally.expect(size=total, files=len(wanted))
        self._draft.require_room(sum((file.bytes or 0) - self._draft.part(file.path).size for file in missing))
        with ThreadPoolExecutor(min(_WORKERS, max(1, len(missing)))) as pool:
            futures = [pool.submit(self.bring, file) for file in missing]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._is_lost.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for future in done:
                future.result()

    def bring(self, file: Wanted) -> tuple[Path, str]:
        """Bring one file, and return where it lies and its tag.

        Raises:
            AgentError: the disk is full, or the file isn't what it should be.
            OSError: it can't be had.
        """
        part = self._draft.part(file.path)
        self._tally.keep(part.size)
        patience = self._patience()
        while not part.is_whole:
            try:
                self._go_on(file, part, patience)
                break
            except OSError as err:
                time.sleep(getattr(err, "after", 0.0))
                patience.wait(err)
            except HTTPException as err:
                patience.wait(ConnectionError(f"the connection broke off: {err!r}"))
        _verify(file, part)
        tag, target = part.tag, self._draft.place(file.path)
        part.finish(target, file.modified)
        self._tally.add_file()
        return target, tag

    def _is_here(self, file: Wanted) -> bool:
        try:
            seen = self._draft.place(file.path).stat()
        except OSError:
            return False
        if file.bytes not in (None, seen.st_size) or file.modified not in (None, seen.st_mtime):
            return False
        self._tally.keep(seen.st_size)
        self._tally.add_file()
        return True

    def _go_on(self, file: Wanted, part: Part, patience: Patience) -> None:
        """Read from where the last connection broke off; begin anew where nothing tells this content from another."""
        with file.open(part.size if part.tag else 0, part.tag) as body:
            if body.start != part.size or not part.tag:
                self._tally.keep(-part.size)
                total = file.bytes if body.total is None else body.total
                self._draft.require_room(total or 0)
                part.begin(body.tag, total)
            while chunk := body.read(_CHUNK_BYTES):
                if self._is_lost.is_set():
                    raise AgentError("given up, because another file can't be had")
                part.append(chunk)
                self._tally.add(len(chunk))
                patience.renew()
        if part.total is not None and part.size < part.total:
            raise ConnectionError(f"the connection broke off after {part.size:,} of {part.total:,} bytes")


def _verify(file: Wanted, part: Part) -> None:
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
            f"{file.path} isn't what it should be",
            why=f"its {file.checksum.kind} checksum is {found}, not {file.checksum.digest}",
            fix="correct the checksum if the file was replaced on purpose",
        )


def _digest(part: Part, kind: str) -> str:
    named_by_git = hashlib.sha1(b"blob %d\0" % part.size, usedforsecurity=False)
    hashed = named_by_git if kind == "git" else hashlib.sha256()
    for chunk in part.chunks():
        hashed.update(chunk)
    return hashed.hexdigest()
