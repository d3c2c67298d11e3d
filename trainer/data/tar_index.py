"""Where each sample's files lie in a tar shard: found by reading its headers once, and kept in a small file."""

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.base.errors import BadRequestError
from trainer.base.files import write_atomically

_FORMAT = 1
_BLOCK = tarfile.BLOCKSIZE
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """The samples of a shard in arrays, which processes share. Sample n has the files from `first[n]` to `first[n+1]`.

    `begin` and `size` say where a file's bytes are, `kind` its extension. `key_ends` cuts `keys` into names in UTF-8.
    """

    extensions: tuple[str, ...]
    first: NDArray[np.int64]
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    kind: NDArray[np.int32]
    keys: NDArray[np.uint8]
    key_ends: NDArray[np.int64]

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.first) - 1

    def key(self, sample: int) -> str:
        """Return a sample's name: the path of its files up to the first dot of the file name."""
        begin = self.key_ends[sample - 1] if sample else 0
        return self.keys[begin : self.key_ends[sample]].tobytes().decode(errors="backslashreplace")


def read_index(path: Path, folder: Path | None) -> ShardIndex:
    """Return a shard's index: from `folder` if it has one of this file as it is now, else by reading the headers.

    Raises:
        BadRequestError: the shard is missing, truncated, compressed, or no tar file.
    """
    try:
        status = path.stat()
    except OSError as err:
        raise _refuse(path, str(err), "check the path") from err
    if folder is None:
        return scan_shard(path)
    stamp = [_FORMAT, status.st_size, status.st_mtime_ns]
    name = hashlib.sha256(str(path.resolve()).encode(errors="surrogateescape")).hexdigest()[:16]
    kept = folder / f"{path.name}.{name}.npz"
    index = _read_kept(kept, stamp)
    if index is None:
        index = scan_shard(path)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, lambda stream: stream.write(_pack(index, stamp)), durable=False)
    return index


def scan_shard(path: Path) -> ShardIndex:
    """Read a shard's headers; members that are no plain files, or have no name or extension, are left out.

    Raises:
        BadRequestError: the shard is truncated, compressed, or no tar file, or has a name twice.
    """
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    for name, begin, size in _list_files(path):
        folder, slash, base = name.rpartition("/")
        stem, _, extension = base.partition(".")
        if not stem or not extension:
            continue
        files = samples.setdefault(f"{folder}{slash}{stem}", {})
        if extension.lower() in files:
            raise _refuse(path, f"it has {name} twice", "write the shard again, with a key of its own for each sample")
        files[extension.lower()] = (begin, size)
    return _index(samples)


def _list_files(path: Path) -> Iterator[tuple[str, int, int]]:
    end = 0
    try:
        with path.open("rb") as stream:
            if stream.read(8).startswith(_COMPRESSED):
                raise _refuse(path, "it is compressed, so samples can't be read at random", "decompress it")
            total = stream.seek(0, io.SEEK_END)
            stream.seek(0)
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                for member in tar:
                    tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                    if member.size < 0 or member.offset_data < end or member.offset_data + member.size > total:
                        raise _truncated(path, f"{member.name} does not fit into its {total} bytes")
                    end = member.offset_data + (member.size if member.isreg() else 0)
                    if member.isreg() and not member.issparse():
                        yield member.name, member.offset_data, member.size
            stream.seek(-(-end // _BLOCK) * _BLOCK)
            if stream.read(_BLOCK) != bytes(_BLOCK):
                raise _truncated(path, "its end is missing")
    except OSError as err:
        raise _refuse(path, str(err), "check the file") from err
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as err:
        raise _truncated(path, f"it does not read as a tar file: {err}") from err


def _index(samples: dict[str, dict[str, tuple[int, int]]]) -> ShardIndex:
    files = [(extension, *place) for parts in samples.values() for extension, place in parts.items()]
    extensions = tuple(dict.fromkeys(extension for extension, _, _ in files))
    numbers = {extension: number for number, extension in enumerate(extensions)}
    names = [key.encode(errors="surrogateescape") for key in samples]
    return ShardIndex(
        extensions=extensions,
        first=np.cumsum([0, *(len(parts) for parts in samples.values())], dtype=np.int64),
        begin=np.array([begin for _, begin, _ in files], dtype=np.int64),
        size=np.array([size for _, _, size in files], dtype=np.int64),
        kind=np.array([numbers[extension] for extension, _, _ in files], dtype=np.int32),
        keys=np.frombuffer(b"".join(names), dtype=np.uint8),
        key_ends=np.cumsum([len(name) for name in names], dtype=np.int64),
    )


_ARRAYS = ("first", "begin", "size", "kind", "keys", "key_ends")


def _pack(index: ShardIndex, stamp: list[int]) -> bytes:
    texts = json.dumps({"stamp": stamp, "extensions": index.extensions}, ensure_ascii=True).encode()
    arrays: dict[str, Any] = {name: getattr(index, name) for name in _ARRAYS}
    stream = io.BytesIO()
    np.savez(stream, texts=np.frombuffer(texts, dtype=np.uint8), **arrays)
    return stream.getvalue()


def _read_kept(path: Path, stamp: list[int]) -> ShardIndex | None:
    try:
        with np.load(path, allow_pickle=False) as kept:
            texts = json.loads(kept["texts"].tobytes())
            if texts["stamp"] != stamp:
                return None
            arrays: dict[str, Any] = {name: kept[name] for name in _ARRAYS}
            return ShardIndex(extensions=tuple(texts["extensions"]), **arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _truncated(path: Path, why: str) -> BadRequestError:
    return _refuse(path, why, "it is damaged or was not copied whole: copy it again")


def _refuse(path: Path, why: str, fix: str) -> BadRequestError:
    return BadRequestError(f"the shard {path} can't be read", why=why, fix=fix)
