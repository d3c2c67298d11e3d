"""A checkpoint in parts, for weights that no process holds whole: a folder with a shard of each process, and an index.

    step-00001234/0-of-2.safetensors    the first process's rows of every divided tensor, and all that isn't divided
    step-00001234/1-of-2.safetensors    the second one's rows
    step-00001234/index.json            which shards there are; written last: without it the folder is no checkpoint

Rows are divided as torch.chunk does it, and so FSDP2: from any number of shards any number of processes finds its own.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.checkpoints.direct import open_direct
from trainer.checkpoints.document import read_header, write_document
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.tree import Flat
from trainer.errors import first_line
from trainer.files import write_atomically

INDEX = "index.json"
INDEX_FORMAT = "kedge shards 1"
# An index of a thousand shards takes a tenth of it.
_MOST_INDEX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a checkpoint; `checksum` is its header's, which covers that of its data."""

    bytes: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The shards of one checkpoint, in the order of their processes; `about` is what can be told without them."""

    shards: tuple[Shard, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def path(self, folder: Path, number: int) -> Path:
        """Name one shard's file."""
        return _shard_path(folder, number, len(self.shards))

    def is_there(self, folder: Path, number: int) -> bool:
        """Tell whether this very shard is in a folder, as far as its size and its header say."""
        path, shard = self.path(folder, number), self.shards[number]
        try:
            return path.stat().st_size == shard.bytes and read_header(path).checksum == shard.checksum
        except (OSError, ValueError):
            return False


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
    try:
        shard = _write_shard(folder, flat, rank=peers.rank, size=peers.size)
    except OSError as err:
        peers.tell(topic, json.dumps({"error": f"process {peers.rank}: {first_line(err)}"}))
        raise
    peers.tell(topic, json.dumps(asdict(shard)))
    index = Index(shards=tuple(_as_shard(peers.hear(topic, rank)) for rank in range(peers.size)), about=about)
    if peers.rank == 0:
        _write_index(folder, index)
        peers.tell(f"{topic}/index", "written")
    peers.hear(f"{topic}/index", 0)
    if peers.leads_machine and not _has(folder, index):  # this machine has a disk of its own
        _write_index(folder, index)


def has_index(folder: Path) -> bool:
    """Tell whether a folder is a checkpoint."""
    return (folder / INDEX).exists()


def remove_folder(folder: Path) -> None:
    """Remove a checkpoint; other processes may be doing the same."""
    (folder / INDEX).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _write_shard(folder: Path, flat: Flat, *, rank: int, size: int) -> Shard:
    if rank > 0:
        divided = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows}
        flat = replace(flat, plain=None, tensors=divided)
    folder.mkdir(exist_ok=True)
    path = _shard_path(folder, rank, size)
    write_atomically(path, lambda stream: write_document(stream, flat), open_stream=open_direct)
    return Shard(bytes=path.stat().st_size, checksum=read_header(path).checksum)


def _as_shard(text: str) -> Shard:
    told = json.loads(text)
    if "error" in told:
        raise OSError(told["error"])
    return Shard(**told)


def _write_index(folder: Path, index: Index) -> None:
    shards = [asdict(shard) for shard in index.shards]
    text = json.dumps({"format": INDEX_FORMAT, "shards": shards, "about": index.about}) + "\n"
    write_atomically(folder / INDEX, lambda stream: stream.write(text.encode()))


def read_index(folder: Path) -> Index:
    """Read a checkpoint's index.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't what `write_index` writes.
    """
    with (folder / INDEX).open("rb") as stream:
        text = stream.read(_MOST_INDEX_BYTES)
    try:
        content = json.loads(text)
        if content["format"] != INDEX_FORMAT or not content["shards"]:
            raise ValueError("not an index of this format")
        shards = tuple(Shard(bytes=int(one["bytes"]), checksum=int(one["checksum"])) for one in content["shards"])
        return Index(shards=shards, about=dict(content["about"]))
    except (KeyError, TypeError, RecursionError) as err:
        raise ValueError(f"the index makes no sense: {type(err).__name__} {err}") from err


def _has(folder: Path, index: Index) -> bool:
    try:
        return read_index(folder) == index
    except (OSError, ValueError):
        return False


def _shard_path(folder: Path, number: int, size: int) -> Path:
    return folder / f"{number}-of-{size}.safetensors"
