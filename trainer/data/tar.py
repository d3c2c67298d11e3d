"""Tar shards in webdataset's layout (files KEY.EXTENSION, a sample's files share a KEY) as numbered samples.

A sample is read by its offset, so that any worker or rank can read any sample, and a resumed epoch reads nothing twice.
"""

import glob
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.base.errors import BadRequestError, TrainerError
from trainer.base.sources import Sample
from trainer.data.decode import Decoder, UndecodableError, choose_decoders
from trainer.data.order import order_by_shard
from trainer.data.tar_index import ShardIndex, read_index

KEY = "__key__"
_MOST_OPEN = 64
_MOST_SHARDS = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
Shards = str | Path | Sequence[str | Path]


class TarSource:
    """The samples of tar shards: dicts of decoded files by extension, and the sample's key as `__key__`.

    Images become RGB (3, H, W) in uint8 (with Pillow), .npy tensors, .cls numbers, .txt strings, .json what is in it,
    and everything else bytes. An epoch's order mixes the samples of `mixed` random shards at a time.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        only: Sequence[str] | None = None,
        decoders: Mapping[str, Decoder] | None = None,
        transform: Callable[[dict[str, Any], np.random.Generator], Sample] | None = None,
        index_folder: Path | None = None,
        mixed: int = 8,
    ) -> None:
        """Find the samples.

        Args:
            shards: paths, or one pattern: `data/train-{000..015}.tar`, `data/*.tar`.
            only: the extensions to read; None reads all.
            decoders: by extension, instead of the ones above: a function of the file's bytes.
            transform: makes a sample's final form; all of its randomness comes from its generator.
            index_folder: keeps what was found, so that the headers aren't read at each start.
            mixed: shards that are read at the same time.

        Raises:
            BadRequestError: there is no such shard, one is damaged, or files would have to be unpickled.
        """
        self._paths = find_shards(shards)
        self._indices = [read_index(path, index_folder) for path in self._paths]
        self._sizes = [len(index) for index in self._indices]
        self._ends = np.cumsum(self._sizes)
        found = {extension for index in self._indices for extension in index.extensions}
        wanted = sorted(found if only is None else found & {extension.lower() for extension in only})
        self._decoders = choose_decoders(wanted, decoders or {})
        self._transform = transform
        self._mixed = mixed
        self._files = _OpenFiles()

    def __len__(self) -> int:
        """Count the samples of all shards."""
        return int(self._ends[-1])

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Read one sample.

        Raises:
            TrainerError: a file of it can't be read or decoded.
        """
        shard = int(np.searchsorted(self._ends, index, side="right"))
        number = index - (int(self._ends[shard - 1]) if shard else 0)
        sample = {KEY: self._indices[shard].key(number), **dict(self._read(shard, number))}
        return self._transform(sample, rng) if self._transform else sample

    def order(self, _epoch: int, rng: np.random.Generator, _batch_size: int) -> NDArray[np.int64]:
        """Return an order that reads few shards at a time."""
        return order_by_shard(self._sizes, rng, mixed=self._mixed)

    def _read(self, shard: int, number: int) -> Iterator[tuple[str, Any]]:
        index = self._indices[shard]
        for file in range(index.first[number], index.first[number + 1]):
            extension = index.extensions[index.kind[file]]
            decode = self._decoders.get(extension)
            if decode is None:
                continue
            size = int(index.size[file])
            try:
                data = self._files.read(self._paths[shard], int(index.begin[file]), size)
                yield extension, decode(data)
            except (OSError, EOFError, UndecodableError) as err:
                raise _explain(self._paths[shard], index, number, extension, err) from err


class _OpenFiles:
    """The shards that were read last, open. Positions are given with each read, so processes may share them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open files to this process."""
        return {"_open": OrderedDict()}

    def __del__(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            os.close(descriptor)

    def read(self, path: Path, begin: int, size: int) -> bytes:
        descriptor = self._open.get(path)
        if descriptor is None:
            descriptor = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(path)
        return _read_all(descriptor, begin, size)


def _read_all(descriptor: int, begin: int, size: int) -> bytes:
    data = os.pread(descriptor, size, begin)
    while len(data) < size:  # one read returns at most 2 GiB
        more = os.pread(descriptor, size - len(data), begin + len(data))
        if not more:
            raise EOFError(f"the shard ends after {len(data)} of its {size} bytes")
        data += more
    return data


def find_shards(shards: Shards) -> list[Path]:
    """List the shards of a pattern or of several paths: `{000..015}` and `{a,b}` are expanded, then `*`, `?` and `[]`.

    Raises:
        BadRequestError: nothing matches.
    """
    patterns = [shards] if isinstance(shards, (str, Path)) else list(shards)
    paths = [path for pattern in patterns for path in _match(str(pattern))]
    if paths:
        return paths
    raise BadRequestError(
        f"there are no shards {', '.join(map(str, patterns)) or 'in an empty list'}",
        why="no file matches",
        fix="check the folder and the pattern, for example data/train-{000..015}.tar or data/*.tar",
    )


def _match(pattern: str) -> Iterator[Path]:
    for expanded in _expand(pattern):
        if glob.has_magic(expanded):
            yield from sorted(Path(found) for found in glob.glob(expanded, recursive=True))  # noqa: PTH207 - absolute
        else:
            yield Path(expanded)


def _expand(pattern: str) -> list[str]:
    found = _BRACES.search(pattern)
    if not found:
        return [pattern]
    counted = _RANGE.fullmatch(found[1])
    if not counted:
        choices = found[1].split(",")
    elif int(counted[2]) - int(counted[1]) < _MOST_SHARDS:
        width = len(counted[1])
        choices = [f"{number:0{width}}" for number in range(int(counted[1]), int(counted[2]) + 1)]
    else:
        raise BadRequestError(f"{pattern} are too many shards", why=f"at most {_MOST_SHARDS}", fix="check the pattern")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [rest for choice in choices for rest in _expand(f"{before}{choice}{after}")]


def _explain(path: Path, index: ShardIndex, number: int, extension: str, err: Exception) -> TrainerError:
    return TrainerError(
        f"{index.key(number)}.{extension} in the shard {path} can't be read",
        why=str(err) or type(err).__name__,
        fix="copy the shard again, or leave this sample out of it",
    )
