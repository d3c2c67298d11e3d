"""`receive-code`: installs a tar stream from standard input as a new release, atomically."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, cast

from ..base.config import peek_run_config
from ..base.errors import AgentError, RequestError
from ..base.files import locked
from ..base.layout import Layout
from ..base.tar_stream import DAMAGED, TarStream
from . import releases
from .base_release import Stamp, no_base, open_base
from .links import link_data, link_results
from .tree import Tree

LOCK_SECONDS = 120.0
_BUFFER = 1 << 17


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--base", default="", help="hash of the base tree, if the stream is a difference")
    parser.add_argument("--codec", choices=("zstd", "gzip", "none"), default="none")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Receive code. Interrupted at any time, the machine has either the old tree or the new one, whole.

    Raises:
        NoBaseError: the base isn't the current release, or was changed since it was received.
        RequestError: the stream has an invalid entry, or doesn't match its manifest.
        AgentError: the stream was truncated.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    receive(layout, _decoded(args.codec, sys.stdin.buffer), base_hash=args.base)
    _prune_behind(layout)
    return 0


def receive(
    layout: Layout, opened: contextlib.AbstractContextManager[IO[bytes]], *, base_hash: str = "", expected: str = ""
) -> None:
    """Install the tree from a tar stream.

    Args:
        layout: the machine's paths.
        opened: the decoded stream.
        base_hash: the base release, if it is a difference; empty for none.
        expected: the required content hash; empty for any.

    Raises:
        AgentError: the hash isn't the expected one, or as `execute`.
    """
    layout.prepare()
    releases.sweep_incoming(layout)
    base = open_base(layout, base_hash) if base_hash else None
    with releases.incoming(layout) as folder:
        tree = Tree(folder, base)
        with opened as stream:
            _unpack(tree, stream)
        if expected not in ("", tree.content_hash):
            raise AgentError(f"this is the code {tree.content_hash}", why=f"{expected} was requested")
        if tree.says_unchanged:
            _confirm(layout, tree.content_hash)
            return
        stamps = tree.complete()
        # Locked only now, because a sender that hangs must not block the next one.
        with locked(layout.lock("receive"), timeout=LOCK_SECONDS):
            _put_in_place(layout, folder, tree.content_hash, stamps)


def _confirm(layout: Layout, content_hash: str) -> None:
    if content_hash != releases.code_hash(layout):
        raise no_base(content_hash)


def print_hash(layout: Layout) -> int:
    """Print the current release's content hash; an empty line if there is none."""
    sys.stdout.write(releases.code_hash(layout) + "\n")
    return 0


def _put_in_place(layout: Layout, folder: Path, content_hash: str, stamps: dict[str, Stamp]) -> None:
    release = releases.free_name(layout, content_hash)
    releases.write_record(release, {"hash": content_hash, "files": stamps})
    folder.replace(release)
    config = peek_run_config(layout)
    if config is not None:
        link_data(layout, config, release)
        only = config.task("")
        if only is not None and not config.sequence:
            link_results(layout.task(""), only, release)
    releases.switch(layout, release)


def _prune_behind(layout: Layout) -> None:
    """Remove old releases in a background process, so that the sender doesn't wait for it."""
    sys.stdout.flush()
    if os.fork():
        return
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        from ..base import state  # noqa: PLC0415 - not on the way of whoever waits for the code

        with locked(layout.lock("receive"), timeout=LOCK_SECONDS):
            releases.prune(layout, in_use={present.release for present in state.load_all(layout)})
    finally:
        os._exit(0)


def _unpack(tree: Tree, stream: IO[bytes]) -> None:
    try:
        members = TarStream(stream)
        for member in members:
            tree.add(member, members.content())
        while stream.read(1 << 16):
            pass
    except (*DAMAGED, gzip.BadGzipFile) as err:
        raise AgentError("the stream of code was truncated", why=str(err), fix="send it again") from err


@contextlib.contextmanager
def _decoded(codec: str, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    if codec == "gzip":
        with gzip.GzipFile(fileobj=raw) as stream:
            yield cast("IO[bytes]", stream)
    elif codec == "zstd":
        with _zstd(raw) as stream:
            yield stream
    else:
        yield raw


@contextlib.contextmanager
def _zstd(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        decoder = subprocess.Popen(["zstd", "-dcq"], bufsize=_BUFFER, stdin=raw, stdout=subprocess.PIPE)
    except FileNotFoundError as err:
        raise RequestError("this machine has no zstd", fix="send gzip, or install the package zstd") from err
    with decoder:
        try:
            yield cast("IO[bytes]", decoder.stdout)
        except BaseException:
            decoder.kill()
            raise
    if decoder.returncode != 0:
        raise AgentError("the stream of code was truncated", why=f"zstd ended with {decoder.returncode}")


def _on_signal(number: int, _frame: FrameType | None) -> None:
    # As an exception it passes through every clean-up.
    raise SystemExit(128 + number)
