"""`pull-data`: mirror a data set from the store. What is there isn't fetched again, and a cut pull goes on.

What an earlier pull brought and the data set doesn't have any more is removed; what a run has put beside it stays.
Its index, which says what every file is made of, is the one that the laptop has pinned, or nothing is taken.
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

from . import pins
from .datafolder import DataFolder, Draft, own_folder
from .dataindex import INDEX, SHARDS, DataIndex, Piece, parse_index
from .errors import AgentError, RequestError
from .files import join_bounded, locked, read_json, write_atomically, write_json
from .layout import NAME, Layout
from .parse import read_machine_config
from .store import FolderStore, ObjectStore
from .wire import MachineConfig

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, by one thread at a time."""

_DATA = "data"
_PINS = "data-pins"
_LOCK_SECONDS = 3600.0
# Each holds a shard of 64 MiB in memory.
_WORKERS = 4


class _Wanted(NamedTuple):
    """A piece, and where it belongs."""

    draft: Draft
    start: int
    piece: Piece


def configure(parser: argparse.ArgumentParser) -> None:
    """Add which data set, and where to."""
    parser.add_argument("--index", required=True, help="SHA-256 of its index: no other one is taken")
    parser.add_argument("name", help="of the data set in the store")
    parser.add_argument("target", help="path below the machine's data folder")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Mirror a data set, and remember its pin for the run's next attempts.

    Raises:
        RequestError: the name, the target or the pin is none, or the machine has no store.
        AgentError: the store has no such data set, or it is damaged, or can't be read.
    """
    folder = _target(layout, args.target)
    if not pins.PIN.fullmatch(args.index):
        raise RequestError(f"{args.index!r} is no SHA-256 of an index")
    store = open_data(read_machine_config(layout), args.name)
    layout.prepare()
    with locked_for_pulling(layout):
        try:
            pull(store, folder, pin=args.index)
            note = layout.note(_PINS)
            write_json(note, {**read_json(note), str(folder): args.index}, durable=True)
        except OSError as err:
            raise AgentError(
                f"the data set {args.name} can't be pulled",
                why=str(err),
                fix="try again: it goes on from where it was",
            ) from err
    return 0


def newest_pin(layout: Layout, folder: Path, ordered: str) -> str:
    """Return the pin of what lies at a target: that of the last `sync-data`, else what was ordered with the run."""
    return str(read_json(layout.note(_PINS)).get(str(folder), ordered))


def locked_for_pulling(layout: Layout) -> AbstractContextManager[None]:
    """Keep other pulls of the machine waiting: two of one data set would write the same drafts."""
    return locked(layout.lock("pull-data"), timeout=_LOCK_SECONDS)


def open_data(machine: MachineConfig, name: str) -> ObjectStore:
    """Open a data set's place in the machine's store: `data/<name>/`, at the top of the bucket.

    Raises:
        RequestError: that is no name, or the machine has no store.
    """
    url = urlsplit(machine.store_url)
    if not NAME.fullmatch(name):
        raise RequestError(f"{name!r} is no data set's name")
    if url.scheme == "s3":
        from .s3 import S3Store  # noqa: PLC0415 - HTTP and TLS are on nobody else's way
        from .s3client import Client, parse_place  # noqa: PLC0415

        return S3Store(Client(parse_place(machine.store_url)), f"{_DATA}/{name}")
    if url.scheme == "file":
        return FolderStore(Path(unquote(url.path)) / _DATA / name)
    raise RequestError("this machine has no store to pull data from", fix="send it with `kedge sync-data`")


def pull(store: ObjectStore, folder: Path, progress: Progress | None = None, *, pin: str) -> DataIndex:
    """Bring a folder, or a file, to the state of the data set that a store holds, and return what it holds.

    Args:
        store: the data set's place.
        folder: the folder, or the file.
        progress: told how far it is.
        pin: SHA-256 of the index; if it is here, the store isn't asked for it.

    Raises:
        AgentError: the store has no data set there, or another one, or it is damaged; or a folder is in the way of
            a file.
        OSError: the store can't be read, or the disk is full.
    """
    raw = _find_index(folder, pin) or _read_index(store, pin)
    index = parse_index(raw)
    _Mirror(store, folder, index, progress).bring()
    write_atomically(own_folder(folder, is_file=index.is_file) / INDEX, raw)
    return index


def _read_index(store: ObjectStore, pin: str) -> bytes:
    raw = store.read(INDEX)
    if raw is None:
        raise AgentError("the store has no such data set", fix="send it with `kedge sync-data`")
    pins.require(raw, pin, INDEX)
    return raw


def _find_index(folder: Path, pin: str) -> bytes:
    """Return the index that an earlier pull has left here, if it is the one with this SHA-256."""
    for is_file in (False, True):
        path = own_folder(folder, is_file=is_file) / INDEX
        if path.is_file() and hashlib.sha256(raw := path.read_bytes()).hexdigest() == pin:
            return raw
    return b""


class _Mirror:
    """One index on its way into a folder."""

    def __init__(self, store: ObjectStore, target: Path, index: DataIndex, progress: Progress | None) -> None:
        self._store = store
        self._own = own_folder(target, is_file=index.is_file)
        self._index = _named(index, target.name) if index.is_file else index
        self._folder = DataFolder(target.parent if index.is_file else target, self._own)
        self._progress = progress or (lambda _done, _total: None)
        self._done = self._total = 0
        self._counting = threading.Lock()

    def bring(self) -> None:
        self._folder.prepare()
        self._folder.remove(self._previous().paths - self._index.paths)
        for path in self._index.folders:
            self._folder.make(path)
        self._fill(self._begin())
        # Last: until then nothing can be written through one.
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
        """Return what is wanted of each shard; files that need none any more are finished."""
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
            # Also after a `sync-data` that has replaced the index and tidied up: the laptop then says the new pin.
            raise _damaged(f"shard {shard} is missing") from err

    def _count(self, size: int) -> None:
        with self._counting:
            self._done += size
            self._progress(self._done, self._total)


def _named(index: DataIndex, name: str) -> DataIndex:
    """Give a single file the name of its target."""
    return index._replace(files=tuple(file._replace(path=name) for file in index.files[:1]))


def _target(layout: Layout, target: str) -> Path:
    path = posixpath.normpath(target)
    if not target or posixpath.isabs(path) or path in {".", ".."} or path.startswith("../"):
        raise RequestError(f"{target!r} can't be a target for data", fix="name a path relative to the data folder")
    return layout.data / path


def _damaged(why: str) -> AgentError:
    return AgentError("the data set in the store is damaged", why=why, fix="sync the data again from the laptop")
