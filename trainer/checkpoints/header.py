"""The header of a safetensors file: lists the tensors and where they are; in kedge's files also the rest of the state.

    {"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}

kedge's files have in the metadata: `kedge.format`, `kedge.state` (the state without its tensors), `kedge.rows` (the
rows of each slice), `kedge.milestone` (only in a checkpoint that is never pruned), `kedge.data` and `kedge.header`
(CRC-32 of the data, and of the header without this field).
"""

import functools
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch

from trainer.base.memory import is_out_of_memory
from trainer.checkpoints.tree import Flat

T = TypeVar("T")
FORMAT = "2"
# safetensors' own limit (src/tensor.rs, MAX_HEADER_SIZE).
MAX_HEADER_BYTES = 100_000_000
DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
    "F32": torch.float32,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
# A tensor with more elements than this would have more bytes than a 64-bit integer can count.
_MOST_ELEMENTS = 2**62
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
# The data starts at a whole page, so that it can be written with O_DIRECT and without a copy.
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor is: `begin` and `end` are bytes from the start of the data."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A parsed header; `data_crc32` is None in files of other writers."""

    metadata: Mapping[str, str]
    entries: tuple[TensorEntry, ...]
    data_crc32: int | None

    @property
    def plain(self) -> Any:
        """The state without its tensors.

        Raises:
            ValueError: the file isn't a kedge checkpoint.
        """
        if self.metadata.get("kedge.format") != FORMAT:
            raise ValueError(f"not a checkpoint of format {FORMAT}")
        return parse_untrusted(lambda: json.loads(self.metadata["kedge.state"]))

    @property
    def rows(self) -> dict[str, tuple[int, int]]:
        """The rows of each tensor that is a slice.

        Raises:
            ValueError: the rows don't match the tensors' shapes.
        """
        return parse_untrusted(self._read_rows)

    @property
    def is_milestone(self) -> bool:
        """Whether the checkpoint is never pruned."""
        return "kedge.milestone" in self.metadata

    @property
    def checksum(self) -> int:
        """The header's CRC-32, which covers the data's CRC-32.

        Raises:
            ValueError: the file isn't a kedge checkpoint.
        """
        if "kedge.header" not in self.metadata:
            raise ValueError(f"not a checkpoint of format {FORMAT}")
        return parse_untrusted(lambda: int(self.metadata["kedge.header"]))

    def _read_rows(self) -> dict[str, tuple[int, int]]:
        stored = json.loads(self.metadata.get("kedge.rows", "{}"))
        rows = {name: (int(begin), int(total)) for name, (begin, total) in stored.items()}
        shapes = {entry.name: entry.shape for entry in self.entries}
        for name, (begin, total) in rows.items():
            if not shapes[name] or not 0 <= begin <= begin + shapes[name][0] <= total:
                raise ValueError(f"{name} has rows that don't match its shape")
        return rows


def read_header(path: Path) -> Header:
    """Read and verify only a file's header.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated, corrupt, or not a safetensors file.
    """
    with path.open("rb", buffering=0) as stream:
        return read_stream_header(stream)


def render_header(
    flat: Flat,
    tensors: Sequence[tuple[str, torch.Tensor]],
    pieces: Sequence[memoryview],
    *,
    is_milestone: bool = False,
) -> bytes:
    """Render the header of a file whose data are these pieces, which hold these tensors one after another.

    Raises:
        TypeError: safetensors doesn't have a tensor's dtype; the message names it.
    """
    content: dict[str, Any] = {}
    begin = 0
    for name, tensor in tensors:
        end = begin + tensor.numel() * tensor.element_size()
        content[name] = {"dtype": _kind(name, tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    content[_METADATA] = {
        "format": "pt",
        "kedge.format": FORMAT,
        "kedge.state": json.dumps(flat.plain, separators=(",", ":")),
        "kedge.data": str(functools.reduce(lambda crc32, piece: zlib.crc32(piece, crc32), pieces, 0)),
    }
    if is_milestone:
        content[_METADATA]["kedge.milestone"] = "yes"
    if flat.rows:
        content[_METADATA]["kedge.rows"] = json.dumps(flat.rows, separators=(",", ":"))
    content[_METADATA]["kedge.header"] = str(_header_checksum(content))
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % _PAGE_BYTES)
    return _LENGTH.pack(len(text)) + text


def _kind(name: str, tensor: torch.Tensor) -> str:
    if tensor.dtype not in _NAMES:
        raise TypeError(f"{name} is {tensor.dtype}, which a safetensors file cannot hold")
    return _NAMES[tensor.dtype]


def _header_checksum(content: Mapping[str, Any]) -> int:
    """Compute a header's CRC-32 without the field that holds it."""
    metadata = {name: value for name, value in content[_METADATA].items() if name != "kedge.header"}
    return zlib.crc32(json.dumps({**content, _METADATA: metadata}, separators=(",", ":")).encode())


def read_stream_header(stream: BinaryIO) -> Header:
    """Read and verify the header of an open file, up to the start of the data.

    Raises:
        ValueError: it is truncated, corrupt, or not a safetensors file.
    """
    bytes_in_all = stream.seek(0, 2)
    stream.seek(0)
    start = stream.read(_LENGTH.size)
    length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
    if not 0 < length <= min(MAX_HEADER_BYTES, bytes_in_all - _LENGTH.size):
        raise ValueError("truncated, or not a safetensors file")
    text = stream.read(length)
    header = parse_untrusted(lambda: _parse_header(json.loads(text)))
    _check_tiling(header.entries, bytes_in_all - _LENGTH.size - length)
    return header


def _parse_header(content: dict[str, Any]) -> Header:
    metadata = dict(content.get(_METADATA, {}))
    if "kedge.format" in metadata and int(metadata["kedge.header"]) != _header_checksum(content):
        raise ValueError("its header fails its checksum")
    entries = [_parse_entry(name, item) for name, item in content.items() if name != _METADATA]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    crc32 = int(metadata["kedge.data"]) if "kedge.format" in metadata else None
    return Header(metadata=metadata, entries=tuple(entries), data_crc32=crc32)


def _parse_entry(name: str, item: dict[str, Any]) -> TensorEntry:
    begin, end = item["data_offsets"]
    if item["dtype"] not in DTYPES:
        raise ValueError(f"{name} has the unknown dtype {item['dtype']}")
    if any(type(extent) is not int or not 0 <= extent <= _MOST_ELEMENTS for extent in (begin, end, *item["shape"])):
        raise ValueError(f"{name} has an impossible shape")
    entry = TensorEntry(name=name, dtype=DTYPES[item["dtype"]], shape=tuple(item["shape"]), begin=begin, end=end)
    elements = 1
    for extent in entry.shape:
        elements *= extent
    if end - begin != elements * entry.dtype.itemsize:
        raise ValueError(f"{name} has offsets that don't match its shape")
    return entry


def _check_tiling(entries: tuple[TensorEntry, ...], data_bytes: int) -> None:
    edges = [0, *(edge for entry in entries for edge in (entry.begin, entry.end)), data_bytes]
    if any(one != other for one, other in list(pairwise(edges))[::2]):
        raise ValueError("truncated, or its tensors leave gaps")


def parse_untrusted(read: Callable[[], T]) -> T:
    """Turn any error in parsing a file into ValueError, because the file is damaged; out-of-memory errors pass."""
    try:
        return read()
    except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as err:
        if is_out_of_memory(err):
            raise
        raise ValueError(f"its header is invalid: {type(err).__name__} {err}") from err
