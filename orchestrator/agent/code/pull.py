"""`pull-code`: downloads a code tree from the run's prefix in the store, and installs it as `receive-code` does."""

from __future__ import annotations

import argparse
import contextlib
import gzip
from collections.abc import Iterator
from typing import IO, cast

from ..base.errors import AgentError, RequestError
from ..base.files import locked
from ..base.layout import NAME, Layout
from ..base.parse import PIN, read_machine_config
from ..s3 import pins
from ..s3.store import ObjectStore, open_store
from . import releases
from .receive import LOCK_SECONDS, receive


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--sha256", default="", help="SHA-256 of its archive: required unless the code is here")
    parser.add_argument("hash", help="content hash of the code")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Pull code.

    Raises:
        RequestError: the hash is invalid, the machine has no store, or the SHA-256 is missing.
        AgentError: the store has no such code, or can't be read.
    """
    if not NAME.fullmatch(args.hash):
        raise RequestError(f"{args.hash!r} is not a content hash")
    try:
        pull_code(layout, args.hash, args.sha256)
    except OSError as err:
        raise AgentError(f"the code {args.hash} can't be pulled", why=str(err), fix="try again") from err
    return 0


def pull_code(layout: Layout, content_hash: str, pin: str) -> None:
    """Install the code with this hash from the store; download it only if it isn't here.

    Args:
        layout: the machine's paths.
        content_hash: the code's hash as the laptop computes it; not verified for an archive, hence the pin.
        pin: the archive's SHA-256.

    Raises:
        RequestError: the machine has no store, or there is no pin.
        AgentError: the store has no such code, or its SHA-256 differs.
        OSError: the store can't be read, or the disk is full.
    """
    layout.prepare()
    # Two concurrent pulls download it once.
    with locked(layout.lock("pull"), timeout=LOCK_SECONDS):
        if releases.code_hash(layout) == content_hash:
            return
        store = open_store(read_machine_config(layout))
        if store is None:
            raise RequestError("this machine has no store to pull from", fix="send it with `kedge sync-code`")
        if not PIN.fullmatch(pin):
            raise RequestError(f"the code {content_hash} isn't here, and can't be downloaded without its SHA-256")
        try:
            receive(layout, _opened(store, code_key(pin), pin, layout), expected=content_hash)
        except FileNotFoundError as err:
            raise AgentError(
                f"the store has no code {content_hash}", why=str(err), fix="send it with `kedge sync-code`"
            ) from err


def code_key(pin: str) -> str:
    """Return the key of a code archive below the run's prefix."""
    return f"code/{pin}.tar.gz"


@contextlib.contextmanager
def _opened(store: ObjectStore, key: str, pin: str, layout: Layout) -> Iterator[IO[bytes]]:
    with pins.opened(store, key, pin, folder=layout.releases) as archive, gzip.GzipFile(fileobj=archive) as stream:
        yield cast("IO[bytes]", stream)
