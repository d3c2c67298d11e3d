"""`pull-code`: get a tree of code from the run's place in the store, and put it in place as `receive-code` does."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any, cast

from . import releases
from .errors import AgentError, RequestError
from .files import locked
from .layout import NAME, Layout
from .parse import read_machine_config
from .receive import LOCK_SECONDS, receive
from .store import ObjectStore, open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the content hash."""
    parser.add_argument("hash", help="content hash of the code")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Pull code.

    Raises:
        RequestError: that is no hash, or the machine has no store.
        AgentError: the store has no such code, or can't be read.
    """
    if not NAME.fullmatch(args.hash):
        raise RequestError(f"{args.hash!r} is no content hash")
    try:
        pull(layout, args.hash)
    except OSError as err:
        raise AgentError(f"the code {args.hash} can't be pulled", why=str(err), fix="try again") from err
    return 0


def pull(layout: Layout, content_hash: str) -> None:
    """Put the code of this hash in place, from the store; nothing is fetched when it is there already.

    Raises:
        RequestError: the machine has no store.
        AgentError: the store has no such code, or it is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    layout.prepare()
    # Two that pull at once fetch it once.
    with locked(layout.lock("pull"), timeout=LOCK_SECONDS):
        if releases.code_hash(layout) == content_hash:
            return
        store = open_store(read_machine_config(layout))
        if store is None:
            raise RequestError("this machine has no store to pull from", fix="send it with `kedge sync-code`")
        try:
            receive(layout, _opened(store, code_key(content_hash)), expected=content_hash)
        except FileNotFoundError as err:
            raise AgentError(
                f"the store has no code {content_hash}", why=str(err), fix="send it with `kedge sync-code`"
            ) from err


def code_key(content_hash: str) -> str:
    """Return where a tree of code lies in the run's place."""
    return f"code/{content_hash}.tar.gz"


class _Chunks(io.RawIOBase):
    """A file to read from, of the pieces in which a store gives an object."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill what fits of the piece at hand."""
        room = memoryview(buffer)
        self._rest = self._rest or next(self._chunks, b"")
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


@contextlib.contextmanager
def _opened(store: ObjectStore, key: str) -> Iterator[IO[bytes]]:
    chunks = store.get(key)
    # Whether there is one shows with the first piece: before a reader can take its absence for something else.
    first = next(chunks, b"")
    with gzip.GzipFile(fileobj=io.BufferedReader(_Chunks(chain((first,), chunks)), 1 << 17)) as stream:
        yield cast("IO[bytes]", stream)
