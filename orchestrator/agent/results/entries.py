"""Restores single results from an object store, whose list of them may say anything: each entry is validated."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..base.files import replacing
from ..base.layout import Layout
from ..base.tree_rule import is_tree_path, make_folders, stays_inside
from ..s3.store import ObjectStore
from .listing import is_appended
from .upload import blob_key

_CHUNK_BYTES = 1 << 20
_DEPTH = 200
_NO_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_SHA256 = re.compile("[0-9a-f]{64}")


class UnfitError(Exception):
    """The reason why an entry of the manifest isn't restored."""


class Entry(NamedTuple):
    """A validated entry; `link` is a link's target."""

    path: str
    bytes: int
    sha256: str
    mtime: float
    link: str


def parse_entry(row: dict[str, Any]) -> Entry:
    """Validate a row of a manifest.

    Raises:
        UnfitError: it is invalid.
    """
    path, size, sha256 = row.get("path"), row.get("bytes"), row.get("sha256")
    mtime, link = row.get("mtime"), row.get("link", "")
    if not isinstance(path, str) or not is_tree_path(path):
        raise UnfitError("its path leads out of the results")
    if path.count("/") > _DEPTH:
        raise UnfitError("it lies deeper than anything that can be removed again")
    if not isinstance(link, str) or (link and not stays_inside(path, link)):
        raise UnfitError("it is a link that leaves the results")
    if type(size) is not int or size < 0 or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise UnfitError("its size or its checksum is invalid")
    # File systems can't store times beyond this.
    if not isinstance(mtime, int | float) or not 0 <= mtime < 1 << 40:
        raise UnfitError("its time is invalid")
    return Entry(path, size, sha256, mtime, link)


def restore_entry(layout: Layout, store: ObjectStore, entry: Entry, here: dict[str, Path]) -> bool:
    """Restore one result.

    Args:
        layout: the machine's folders.
        store: the place of the machine that has uploaded it.
        entry: the result.
        here: the paths of contents that were already restored, and aren't downloaded again.

    Raises:
        UnfitError: something is in its way, or the stored copy is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    try:
        return _restore_entry(layout.results, store, entry, here)
    except OSError as err:
        if unfit := explain(err):
            raise unfit from err
        raise


def _restore_entry(results: Path, store: ObjectStore, entry: Entry, here: dict[str, Path]) -> bool:
    target = results / entry.path
    make_folders(results, entry.path)
    if entry.link:
        if not target.is_symlink() and not target.exists():
            target.symlink_to(entry.link)
        return True
    done = _is_there(target, entry) or _copy(store, entry, target, here.get(entry.sha256))
    if not is_appended(entry.path):
        here[entry.sha256] = target
    return done


def explain(err: OSError) -> UnfitError | None:
    """Return why an entry can't be restored on this disk; None if another try may succeed."""
    if isinstance(err, NotADirectoryError):
        return UnfitError(str(err))
    return UnfitError("its name isn't valid on this disk") if err.errno in _NO_NAME else None


def _copy(store: ObjectStore, entry: Entry, target: Path, source: Path | None) -> bool:
    if target.is_dir():
        raise UnfitError("a folder is in its way")
    if entry.bytes > shutil.disk_usage(target.parent).free:
        raise UnfitError(f"the disk has no room for its {entry.bytes:,} bytes")
    with replacing(target) as stream:
        last = b"\n"
        for last in _contents(store, entry, source):
            stream.write(last)
        if is_appended(entry.path) and target.exists():
            # This machine has already written to its own log, which is appended to the restored one.
            stream.write((b"" if last.endswith(b"\n") else b"\n") + target.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())
        os.utime(stream.fileno(), (entry.mtime, entry.mtime))
    return True


def _contents(store: ObjectStore, entry: Entry, source: Path | None) -> Iterator[bytes]:
    """Yield a content, at most the manifest's size, and raise at the end if it doesn't match the manifest."""
    hashed = hashlib.sha256()
    left = entry.bytes
    try:
        for chunk in _read(source) if source else store.get(blob_key(entry.sha256)):
            left -= len(chunk)
            if left < 0:
                break
            hashed.update(chunk)
            yield chunk
    except FileNotFoundError as err:
        raise UnfitError("it is missing in the store") from err
    if left or hashed.hexdigest() != entry.sha256:
        raise UnfitError("the stored copy is damaged")


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _is_there(target: Path, entry: Entry) -> bool:
    """Whether an earlier call has restored this file; kedge's own logs may have grown since."""
    if target.is_symlink():
        return False
    try:
        with target.open("rb") as stream:
            hashed = hashlib.sha256()
            left = entry.bytes
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                hashed.update(chunk)
                left -= len(chunk)
            is_longer = bool(stream.read(1)) and not is_appended(entry.path)
    except OSError:
        return False
    return not left and not is_longer and hashed.hexdigest() == entry.sha256
