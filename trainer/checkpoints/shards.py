"""Sharded checkpoints, for models that no process holds whole: a folder with one shard per process, and an index.

    step-00001234/0-of-2.5f3a9c01.safetensors   rank 0's rows of every sharded tensor, and what isn't sharded
    step-00001234/1-of-2.5f3a9c01.safetensors   rank 1's rows
    step-00001234/index.json                    lists the shards; without it the folder is not a checkpoint

The index is written last, after the replicas (see `replicas`). Every save uses new shard names: saving a step again
replaces the index, and the shards of the old index stay whole until then.

Rows are split as torch.chunk and FSDP2 split them: any number of processes can find its rows in any number of shards.
"""

import json
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from trainer.base.files import sync_folder, write_atomically
from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import render_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.tree import Flat

INDEX = "index.json"
MILESTONE = "milestone"
"""The key in an index's metadata that says that the checkpoint is never pruned."""
INDEX_FORMAT = "kedge shards 1"
# An index of a thousand shards takes a tenth of this.
_MOST_INDEX_BYTES = 1 << 20
_SHARD_NAME = re.compile(r"\d+-of-\d+\.[0-9a-f]{8}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a checkpoint; `checksum` is its header's, which covers its data's."""

    file: str
    bytes: int
    checksum: int

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has this shard, judged by size and header checksum."""
        path = folder / self.file
        try:
            return path.stat().st_size == self.bytes and read_header(path).checksum == self.checksum
        except (OSError, ValueError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The shards of one checkpoint, by rank; `about` is metadata that can be read without opening them."""

    shards: tuple[Shard, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


def chunk_rows(total: int, rank: int, size: int) -> range:
    """Return the rows that one of `size` processes holds of a tensor with `total` rows."""
    each = -(-total // size)
    return range(min(rank * each, total), min((rank + 1) * each, total))


def write_sharded(folder: Path, flat: Flat, *, peers: Peers, topic: str, about: Mapping[str, Any]) -> None:
    """Write this process's shard; return once all shards and the index are durable.

    Args:
        folder: the checkpoint, on this process's disk.
        flat: this process's part of the state.
        peers: the processes that write it.
        topic: a unique name for this save among the peers.
        about: metadata for the index.

    Raises:
        OSError: a disk of one of them refuses; TimeoutError if one of them is gone.
    """
    save = peers.broadcast_from_main(f"{topic}/save", lambda: uuid.uuid4().hex[:8])
    folder.mkdir(exist_ok=True)
    pieces = render_document(_own_part(flat, peers))
    shard = _write_shard(folder / f"{peers.rank}-of-{peers.size}.{save}.safetensors", pieces)
    peers.publish(topic, json.dumps({"shard": asdict(shard), "lengths": [len(piece) for piece in pieces]}))
    told = [json.loads(text) for text in peers.all_gather(topic)]
    index = Index(shards=tuple(Shard(**one["shard"]) for one in told), about=about)
    peers.replicate(
        topic,
        paths=[folder / one.file for one in index.shards],
        lengths=[one["lengths"] for one in told],
        pieces=pieces,
        is_here=lambda rank: index.shards[rank].is_in(folder),
    )
    if peers.rank == 0:
        _write_index(folder, index)
        peers.publish(f"{topic}/index", "written")
    peers.receive(f"{topic}/index", 0)
    if peers.is_local_main:
        if not _has(folder, index):  # this machine doesn't share the main process's disk
            _write_index(folder, index)
        _remove_others(folder, index)


def read_index(folder: Path) -> Index:
    """Read a checkpoint's index.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't an index that `write_sharded` writes.
    """
    with (folder / INDEX).open("rb") as stream:
        text = stream.read(_MOST_INDEX_BYTES)
    try:
        content = json.loads(text)
        if content["format"] != INDEX_FORMAT or not content["shards"]:
            raise ValueError("not an index of this format")
        return Index(shards=tuple(_parse_shard(one) for one in content["shards"]), about=dict(content["about"]))
    except (KeyError, TypeError, OverflowError, RecursionError) as err:
        raise ValueError(f"the index is invalid: {type(err).__name__} {err}") from err


def is_whole(path: Path) -> bool:
    """Whether a checkpoint (file or folder) is complete, not a folder whose shards are still being written."""
    return (path / INDEX).exists() if path.is_dir() else True


def is_milestone(path: Path) -> bool:
    """Whether a checkpoint (file or folder) is never pruned; a damaged one is no milestone."""
    try:
        return bool(read_index(path).about.get(MILESTONE)) if path.is_dir() else read_header(path).is_milestone
    except (OSError, ValueError):
        return False


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint (file or folder); other processes may do so at the same time."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    (path / INDEX).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _own_part(flat: Flat, peers: Peers) -> Flat:
    """Keep what this process writes: the first one also writes what isn't sharded."""
    if peers.rank == 0:
        return flat
    sharded = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows}
    return replace(flat, plain=None, tensors=sharded)


def _write_shard(path: Path, pieces: Sequence[memoryview]) -> Shard:
    def write(stream: BinaryIO) -> None:
        for piece in pieces:
            stream.write(piece)

    write_atomically(path, write, open_stream=open_direct)
    return Shard(file=path.name, bytes=path.stat().st_size, checksum=read_header(path).checksum)


def _write_index(folder: Path, index: Index) -> None:
    shards = [asdict(shard) for shard in index.shards]
    text = json.dumps({"format": INDEX_FORMAT, "shards": shards, "about": index.about}) + "\n"
    write_atomically(folder / INDEX, lambda stream: stream.write(text.encode()))
    sync_folder(folder.parent)  # makes the folder's own name durable


def _has(folder: Path, index: Index) -> bool:
    try:
        return read_index(folder) == index
    except (OSError, ValueError):
        return False


def _remove_others(folder: Path, index: Index) -> None:
    """Remove the shards of an earlier save of the same step."""
    named = {shard.file for shard in index.shards}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)


def _parse_shard(content: dict[str, Any]) -> Shard:
    if not _SHARD_NAME.fullmatch(content["file"]):
        raise ValueError("invalid shard name")
    return Shard(file=content["file"], bytes=int(content["bytes"]), checksum=int(content["checksum"]))
