"""`pull-code`: get a tree of code from the run's place in the store, and put it in place as `receive-code` does."""

from __future__ import annotations

import argparse
import contextlib
import gzip
from collections.abc import Iterator
from typing import IO, cast

from . import pins, releases
from .errors import AgentError, RequestError
from .files import locked
from .layout import NAME, Layout
from .parse import read_machine_config
from .receive import LOCK_SECONDS, receive
from .store import ObjectStore, open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the content hash, and what the archive must be."""
    parser.add_argument("--sha256", default="", help="SHA-256 of its archive: without it, nothing is fetched")
    parser.add_argument("hash", help="content hash of the code")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Pull code.

    Raises:
        RequestError: that is no hash, or the machine has no store, or no SHA-256 where one is needed.
        AgentError: the store has no such code, or can't be read.
    """
    if not NAME.fullmatch(args.hash):
        raise RequestError(f"{args.hash!r} is no content hash")
    try:
        pull(layout, args.hash, args.sha256)
    except OSError as err:
        raise AgentError(f"the code {args.hash} can't be pulled", why=str(err), fix="try again") from err
    return 0


def pull(layout: Layout, content_hash: str, pin: str) -> None:
    """Put the code of this hash in place, from the store; nothing is fetched when it is there already.

    Args:
        layout: of this machine.
        content_hash: of the code, as the laptop computes it: an archive only claims to have it.
        pin: SHA-256 of its archive.

    Raises:
        RequestError: the machine has no store, or there is no pin.
        AgentError: the store has no such code, or it isn't what was ordered.
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
        if not pins.PIN.fullmatch(pin):
            raise RequestError(f"the code {content_hash} isn't here, and isn't fetched without its SHA-256")
        try:
            receive(layout, _opened(store, code_key(pin), pin, layout), expected=content_hash)
        except FileNotFoundError as err:
            raise AgentError(
                f"the store has no code {content_hash}", why=str(err), fix="send it with `kedge sync-code`"
            ) from err


def code_key(pin: str) -> str:
    """Return where an archive of code lies in the run's place."""
    return f"code/{pin}.tar.gz"


@contextlib.contextmanager
def _opened(store: ObjectStore, key: str, pin: str, layout: Layout) -> Iterator[IO[bytes]]:
    with pins.opened(store, key, pin, folder=layout.releases) as archive, gzip.GzipFile(fileobj=archive) as stream:
        yield cast("IO[bytes]", stream)
