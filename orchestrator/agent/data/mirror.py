"""`pull-data`: mirrors a data set from the store. Existing files aren't fetched again, an interrupted pull resumes.

Files of an earlier pull that are no longer in the data set are removed; files that a run has added stay. The index,
which lists every file's pieces, must have the SHA-256 that the laptop has pinned.
"""

from __future__ import annotations

import argparse
import hashlib
import posixpath
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..base.errors import AgentError, RequestError
from ..base.files import join_bounded, locked, read_json, write_atomically, write_json
from ..base.layout import NAME, Layout
from ..base.parse import PIN, read_machine_config
from ..base.wire import MachineConfig
from ..s3 import pins
from ..s3.store import FolderStore, ObjectStore
from .fetched import remove_fetched
from .folder import DataFolder, FileDraft, own_folder
from .index import INDEX, SHARDS, DataIndex, Piece, parse_index

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total, by one thread at a time."""

_DATA = "data"
_PINS = "data-pins"
_LOCK_SECONDS = 3600.0
# Each thread holds a shard of 64 MiB in memory.
_WORKERS = 4


class _Wanted(NamedTuple):
    """A piece to fetch, and its place in a file."""

    draft: FileDraft
    start: int
    piece: Piece


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--index", required=True, help="SHA-256 of its index: no other one is accepted")
    parser.add_argument("name", help="the data set's name in the store")
    parser.add_argument("target", help="path below the machine's data folder")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Mirror a data set, and record its pin for the run's next attempts.

    Raises:
        RequestError: the name, the target or the pin is invalid, or the machine has no store.
        AgentError: the store has no such data set, it is damaged, or the store can't be read.
    """
    folder = _target(layout, args.target)
    if not PIN.fullmatch(args.index):
        raise RequestError(f"{args.index!r} is not a SHA-256")
    store = open_data(read_machine_config(layout), args.name)
    layout.prepare()
    with locked_for_pulling(layout):
        try:
            remove_fetched(folder)
            mirror_data_set(store, folder, pin=args.index)
            note = layout.note(_PINS)
            write_json(note, {**read_json(note), str(folder): args.index}, durable=True)
        except OSError as err:
            raise AgentError(
                f"the data set {args.name} can't be pulled",
                why=str(err),
                fix="try again: it resumes where it stopped",
            ) from err
    return 0


def newest_pin(layout: Layout, folder: Path, ordered: str) -> str:
    """Return a target's pin: that of the last `sync-data`, else the run's original one."""
    return str(read_json(layout.note(_PINS)).get(str(folder), ordered))


def locked_for_pulling(layout: Layout) -> AbstractContextManager[None]:
    """Lock out the machine's other pulls: two pulls of one data set would write the same incomplete files."""
    return locked(layout.lock("pull-data"), timeout=_LOCK_SECONDS)


def open_data(machine: MachineConfig, name: str) -> ObjectStore:
    """Open a data set's prefix in the machine's store: `data/<name>/`, at the top of the bucket.

    Raises:
        RequestError: the name is invalid, or the machine has no store.
    """
    url = urlsplit(machine.store_url)
    if not NAME.fullmatch(name):
        raise RequestError(f"{name!r} is not a valid data-set name")
    if url.scheme == "s3":
        from ..s3.bucket import S3Store  # noqa: PLC0415 - HTTP and TLS are on nobody else's way
        from ..s3.client import Client, parse_s3_url  # noqa: PLC0415

        return S3Store(Client(parse_s3_url(machine.store_url)), f"{_DATA}/{name}")
    if url.scheme == "file":
        return FolderStore(Path(unquote(url.path)) / _DATA / name)
    raise RequestError("this machine has no store to pull data from", fix="send it with `kedge sync-data`")


def mirror_data_set(store: ObjectStore, folder: Path, progress: Progress | None = None, *, pin: str) -> DataIndex:
    """Make a folder, or a file, equal to a data set in a store; return the data set's index.

    Args:
        store: the data set's prefix.
        folder: the folder, or the file.
        progress: called as bytes arrive.
        pin: SHA-256 of the index, which is fetched only if it isn't here.

    Raises:
        AgentError: the store has no such data set, or another one with its name; it is damaged; or a folder is in the
            way of a file.
        OSError: the store can't be read, or the disk is full.
    """
    raw = _find_index(folder, pin) or _read_index(store, pin)
    index = parse_index(raw)
    _Mirror(store, folder, index, progress).run()
    write_atomically(own_folder(folder, is_file=index.is_file) / INDEX, raw)
    return index


def _read_index(store: ObjectStore, pin: str) -> bytes:
    raw = store.read(INDEX)
    if raw is None:
        raise AgentError("the store has no such data set", fix="send it with `kedge sync-data`")
    pins.require(raw, pin, INDEX)
    return raw


def _find_index(folder: Path, pin: str) -> bytes:
    """Return the index of an earlier pull, if it has this SHA-256."""
    for is_file in (False, True):
        path = own_folder(folder, is_file=is_file) / INDEX
        if path.is_file() and hashlib.sha256(raw := path.read_bytes()).hexdigest() == pin:
            return raw
    return b""


class _Mirror:
    """Applies one index to a folder."""

    def __init__(self, store: ObjectStore, target: Path, index: DataIndex, progress: Progress | None) -> None:
        self._store = store
        self._own = own_folder(target, is_file=index.is_file)
        self._index = _named(index, target.name) if index.is_file else index
        self._folder = DataFolder(target.parent if index.is_file else target, self._own)
        self._progress = progress or (lambda _done, _total: None)
        self._done = self._total = 0
        self._counting = threading.Lock()

    def run(self) -> None:
        self._folder.prepare()
        self._folder.remove(self._previous().paths - self._index.paths)
        for path in self._index.folders:
            self._folder.make(path)
        self._fill(self._begin())
        # Links come last, so that nothing can be written through one.
        for path, target in self._index.links.items():
            self._folder.link(path, target)
        self._folder.tidy()

    def _previous(self) -> DataIndex:
        if self._index.is_file:
            return DataIndex()
        try:
            return parse_index((self._own / INDEX).read_bytes())
        except (FileNotFoundError, AgentError):
            return DataIndex()

    def _begin(self) -> dict[str, list[_Wanted]]:
        """Return the wanted pieces by shard; finish files that need no more pieces."""
        wanted: defaultdict[str, list[_Wanted]] = defaultdict(list)
        for file in self._index.files:
            if self._folder.has(file):
                continue
            draft = self._folder.draft(file)
            missing = draft.missing()
            self._total += sum(piece.bytes for _, piece in missing)
            for start, piece in missing:
                wanted[piece.shard].append(_Wanted(draft, start, piece))
            if not missing:
                self._folder.finish(draft)
        return wanted

    def _fill(self, wanted: dict[str, list[_Wanted]]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            futures = [pool.submit(self._take, shard, pieces) for shard, pieces in wanted.items()]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            pool.shutdown(wait=True, cancel_futures=True)
            for future in done:
                future.result()

    def _take(self, shard: str, pieces: list[_Wanted]) -> None:
        content = self._get(shard)
        for draft, start, piece in pieces:
            run = content[piece.offset : piece.offset + piece.bytes]
            if hashlib.sha256(run).hexdigest() != piece.sha256:
                raise _damaged(f"shard {shard} doesn't hold {draft.file.path!r}")
            if draft.write(start, run):
                self._folder.finish(draft)
            self._count(piece.bytes)

    def _get(self, shard: str) -> memoryview:
        try:
            return memoryview(join_bounded(self._store.get(SHARDS + shard), f"shard {shard}"))
        except FileNotFoundError as err:
            # This also happens after a `sync-data` that replaced the index and pruned: the laptop sends the new pin.
            raise _damaged(f"shard {shard} is missing") from err

    def _count(self, size: int) -> None:
        with self._counting:
            self._done += size
            self._progress(self._done, self._total)


def _named(index: DataIndex, name: str) -> DataIndex:
    """Rename a single file to its target's name."""
    return index._replace(files=tuple(file._replace(path=name) for file in index.files[:1]))


def _target(layout: Layout, target: str) -> Path:
    path = posixpath.normpath(target)
    if not target or posixpath.isabs(path) or path in {".", ".."} or path.startswith("../"):
        raise RequestError(f"{target!r} is not a valid target for data", fix="give a path relative to the data folder")
    return layout.data / path


def _damaged(why: str) -> AgentError:
    return AgentError("the data set in the store is damaged", why=why, fix="sync the data again from the laptop")
