"""Writes and reads a state as one safetensors file: tensors, the rest as JSON in the header, checksums of both.

    8 bytes    the header's length
    header     JSON: {"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}, padded to a whole page
    data       the tensors, largest element size first, so that each is aligned to its element size

A file that has only some rows of a tensor is a shard, and says which rows they are; see `shards`. Any reader of
safetensors can read it (https://huggingface.co/docs/safetensors, "Format", 2026-11), and finds the model's weights
under their own names. Files of other writers can be read as well. The format can't contain code.

Why not torch.save with weights_only=True: torch.load doesn't verify the checksums that torch.save writes, and is no
faster when they are verified (benchmarks/results/checkpoint.txt).
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from trainer.checkpoints.header import Header, TensorEntry, parse_untrusted, read_stream_header, render_header
from trainer.checkpoints.tree import Flat, unflatten

# Smaller tensors are copied: an optimizer keeps its step counts as they are loaded.
_LEAST_MAPPED_BYTES = 1 << 16


def write_document(stream: BinaryIO, flat: Flat, *, is_milestone: bool = False) -> None:
    """Write a state whose tensors are contiguous and in main memory.

    Raises:
        OSError: the disk refuses.
        TypeError: safetensors doesn't have a tensor's dtype; the message names it.
    """
    for piece in render_document(flat, is_milestone=is_milestone):
        stream.write(piece)


def render_document(flat: Flat, *, is_milestone: bool = False) -> list[memoryview]:
    """Render the file of such a state in pieces: the header, and views of the tensors' memory.

    Raises:
        TypeError: safetensors doesn't have a tensor's dtype; the message names it.
    """
    tensors = sorted(flat.tensors.items(), key=lambda item: -item[1].element_size())
    pieces = merge_adjacent([tensor for _, tensor in tensors])
    return [memoryview(render_header(flat, tensors, pieces, is_milestone=is_milestone)), *pieces]


def read_document(path: Path) -> Any:
    """Read the state in a file onto the CPU, checksums verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated, corrupt, not a kedge checkpoint, or one of several shards.
    """
    return _join(read_flat(path))


def read_verified_document(path: Path) -> Any:
    """Read the state in a file whose data another process of this machine verifies; see `read_document`."""
    return _join(_read_flat(path, verifies=False))


def map_document(path: Path) -> Any:
    """Map the state in a file that another process of this machine verifies; see `map_flat` and `read_document`."""
    return _join(map_flat(path))


def read_flat(path: Path) -> Flat:
    """Read a file onto the CPU without joining the state, checksums verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated, corrupt, or not a kedge checkpoint.
    """
    return _read_flat(path, verifies=True)


def map_flat(path: Path) -> Flat:
    """Map a file into memory without joining the state; only its header is verified.

    Processes that map the same file share the page cache. The tensors are views of the file: copy them before the file
    may be removed. A write to a view changes neither the file nor other processes' views.

    Raises:
        OSError: it cannot be read.
        ValueError: its header is corrupt, or it is not a kedge checkpoint.
    """
    with path.open("rb", buffering=0) as stream:
        header = read_stream_header(stream)
        start = stream.tell()
        whole = torch.from_numpy(np.memmap(stream, dtype=np.uint8, mode="c"))
    tensors = parse_untrusted(lambda: {entry.name: _view(whole[start:], entry) for entry in header.entries})
    return Flat(plain=header.plain, rows=header.rows, tensors=tensors)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of any safetensors file onto the CPU, by name.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't a valid safetensors file, or is one of several shards.
    """
    with path.open("rb", buffering=0) as stream:
        header = read_stream_header(stream)
        _refuse_shard(header.metadata.get("kedge.rows"))
        return parse_untrusted(lambda: _read_tensors(stream, header, verifies=True))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """View the bytes of a contiguous tensor in main memory."""
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)


def merge_adjacent(tensors: Sequence[torch.Tensor]) -> list[memoryview]:
    """View the bytes of contiguous tensors in main memory, in order; adjacent tensors become one piece."""
    spans: list[tuple[torch.UntypedStorage, int, int]] = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        begin = int(tensor.storage_offset()) * tensor.element_size()
        end = begin + tensor.numel() * tensor.element_size()
        if spans and spans[-1][0].data_ptr() == storage.data_ptr() and spans[-1][2] == begin:
            begin = spans.pop()[1]
        spans.append((storage, begin, end))
    whole = torch.empty(0, dtype=torch.uint8)
    return [as_bytes(whole.new().set_(storage)[begin:end]) for storage, begin, end in spans if begin < end]


def _join(flat: Flat) -> Any:
    _refuse_shard(flat.rows)
    return parse_untrusted(lambda: unflatten(flat.plain, flat.tensors))


def _read_flat(path: Path, *, verifies: bool) -> Flat:
    with path.open("rb", buffering=0) as stream:
        header = read_stream_header(stream)
        tensors = parse_untrusted(lambda: _read_tensors(stream, header, verifies=verifies))
        return Flat(plain=header.plain, rows=header.rows, tensors=tensors)


def _read_tensors(stream: BinaryIO, header: Header, *, verifies: bool) -> dict[str, torch.Tensor]:
    tensors, crc32 = {}, 0
    expected = header.data_crc32 if verifies else None
    for entry in header.entries:
        tensors[entry.name] = _read_tensor(stream, entry)
        if expected is not None:
            crc32 = zlib.crc32(as_bytes(tensors[entry.name]), crc32)
    if crc32 != (expected or 0):
        raise ValueError("its data fails its checksum")
    return tensors


def _view(data: torch.Tensor, entry: TensorEntry) -> torch.Tensor:
    found = data[entry.begin : entry.end]
    if found.data_ptr() % entry.dtype.itemsize or found.numel() < _LEAST_MAPPED_BYTES:
        found = found.clone()
    return found.view(entry.dtype).view(entry.shape)


def _read_tensor(stream: BinaryIO, entry: TensorEntry) -> torch.Tensor:
    # Each tensor has its own memory: a view of one block would keep the whole block alive.
    tensor = torch.empty(entry.shape, dtype=entry.dtype)
    content = as_bytes(tensor)
    done = 0
    while done < len(content):
        count = stream.readinto(content[done:])  # type: ignore[attr-defined]  # a raw file has it
        if not count:
            raise ValueError(f"ends within {entry.name}")
        done += count
    return tensor


def _refuse_shard(rows: object) -> None:
    if rows:
        raise ValueError("one of several shards: give the folder that it is in")
