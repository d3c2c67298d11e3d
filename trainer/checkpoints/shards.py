"""A checkpoint in parts, for weights that no process holds whole: a folder with a shard of each process, and an index.

    step-00001234/0-of-2.5f3a9c01.safetensors   the first process's rows of every divided tensor, and what isn't divided
    step-00001234/1-of-2.5f3a9c01.safetensors   the second one's rows
    step-00001234/index.json                    which shards there are; without it the folder is no checkpoint

The index is written last. Shards have names of their own in each save: a step that is saved again replaces the index,
and what it named before stays whole until then.

Rows are divided as torch.chunk does it, and so FSDP2: from any number of shards any number of processes finds its own.
"""

import json
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import write_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.tree import Flat
from trainer.files import sync_folder, write_atomically

INDEX = "index.json"
INDEX_FORMAT = "kedge shards 1"
# An index of a thousand shards takes a tenth of it.
_MOST_INDEX_BYTES = 1 << 20
_SHARD_NAME = re.compile(r"\d+-of-\d+\.[0-9a-f]{8}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a checkpoint; `checksum` is its header's, which covers that of its data."""

    file: str
    bytes: int
    checksum: int

    def is_in(self, folder: Path) -> bool:
        """Tell whether this very shard is in a folder, as far as its size and its header say."""
        path = folder / self.file
        try:
            return path.stat().st_size == self.bytes and read_header(path).checksum == self.checksum
        except (OSError, ValueError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The shards of one checkpoint, in the order of their processes; `about` is what can be told without them."""

    shards: tuple[Shard, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


def chunk_rows(total: int, rank: int, size: int) -> range:
    """Tell which of so many rows one process out of `size` holds."""
    each = -(-total // size)
    return range(min(rank * each, total), min((rank + 1) * each, total))


def write_together(folder: Path, flat: Flat, *, peers: Peers, topic: str, about: Mapping[str, Any]) -> None:
    """Write this process's shard; return once all shards and the index are durable.

    Args:
        folder: the checkpoint, on this process's disk.
        flat: the state, as far as it is here.
        peers: those who write it.
        topic: the name of this very save between them.
        about: goes into the index.

    Raises:
        OSError: what the disk of one of them says, or one has gone (TimeoutError).
    """
    save = peers.hear_main(f"{topic}/save", lambda: uuid.uuid4().hex[:8])
    folder.mkdir(exist_ok=True)
    peers.tell(topic, json.dumps(asdict(_write_shard(folder, flat, peers, save))))
    index = Index(shards=tuple(Shard(**json.loads(told)) for told in peers.hear_all(topic)), about=about)
    if peers.rank == 0:
        _write_index(folder, index)
        peers.tell(f"{topic}/index", "written")
    peers.hear(f"{topic}/index", 0)
    if peers.leads_machine:
        if not _has(folder, index):  # this machine has a disk of its own
            _write_index(folder, index)
        _remove_others(folder, index)


def read_index(folder: Path) -> Index:
    """Read a checkpoint's index.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't what `write_together` writes.
    """
    with (folder / INDEX).open("rb") as stream:
        text = stream.read(_MOST_INDEX_BYTES)
    try:
        content = json.loads(text)
        if content["format"] != INDEX_FORMAT or not content["shards"]:
            raise ValueError("not an index of this format")
        return Index(shards=tuple(_parse_shard(one) for one in content["shards"]), about=dict(content["about"]))
    except (KeyError, TypeError, OverflowError, RecursionError) as err:
        raise ValueError(f"the index makes no sense: {type(err).__name__} {err}") from err


def has_index(folder: Path) -> bool:
    """Tell whether a folder is a checkpoint."""
    return (folder / INDEX).exists()


def remove_folder(folder: Path) -> None:
    """Remove a checkpoint; other processes may be doing the same."""
    (folder / INDEX).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _write_shard(folder: Path, flat: Flat, peers: Peers, save: str) -> Shard:
    if peers.rank > 0:
        divided = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows}
        flat = replace(flat, plain=None, tensors=divided)
    path = folder / f"{peers.rank}-of-{peers.size}.{save}.safetensors"
    write_atomically(path, lambda stream: write_document(stream, flat), open_stream=open_direct)
    return Shard(file=path.name, bytes=path.stat().st_size, checksum=read_header(path).checksum)


def _write_index(folder: Path, index: Index) -> None:
    shards = [asdict(shard) for shard in index.shards]
    text = json.dumps({"format": INDEX_FORMAT, "shards": shards, "about": index.about}) + "\n"
    write_atomically(folder / INDEX, lambda stream: stream.write(text.encode()))
    sync_folder(folder.parent)  # the folder's own name


def _has(folder: Path, index: Index) -> bool:
    try:
        return read_index(folder) == index
    except (OSError, ValueError):
        return False


def _remove_others(folder: Path, index: Index) -> None:
    """Remove what an earlier save of the same step has left."""
    named = {shard.file for shard in index.shards}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)


def _parse_shard(content: dict[str, Any]) -> Shard:
    if not _SHARD_NAME.fullmatch(content["file"]):
        raise ValueError("a shard has a name that no shard has")
    return Shard(file=content["file"], bytes=int(content["bytes"]), checksum=int(content["checksum"]))
