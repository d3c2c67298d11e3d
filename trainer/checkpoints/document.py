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

import torch

from trainer.checkpoints.header import Header, TensorEntry, parse_untrusted, read_stream_header, render_header
from trainer.checkpoints.tree import Flat, unflatten


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
    flat = read_flat(path)
    _refuse_shard(flat.rows)
    return parse_untrusted(lambda: unflatten(flat.plain, flat.tensors))


def read_flat(path: Path) -> Flat:
    """Read a file onto the CPU without joining the state, checksums verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated, corrupt, or not a kedge checkpoint.
    """
    with path.open("rb", buffering=0) as stream:
        header = read_stream_header(stream)
        return Flat(
            plain=header.plain, rows=header.rows, tensors=parse_untrusted(lambda: _read_tensors(stream, header))
        )


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of any safetensors file onto the CPU, by name.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't a valid safetensors file, or is one of several shards.
    """
    with path.open("rb", buffering=0) as stream:
        header = read_stream_header(stream)
        _refuse_shard(header.metadata.get("kedge.rows"))
        return parse_untrusted(lambda: _read_tensors(stream, header))


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


def _read_tensors(stream: BinaryIO, header: Header) -> dict[str, torch.Tensor]:
    tensors, crc32 = {}, 0
    for entry in header.entries:
        tensors[entry.name] = _read_tensor(stream, entry)
        if header.data_crc32 is not None:
            crc32 = zlib.crc32(as_bytes(tensors[entry.name]), crc32)
    if crc32 != (header.data_crc32 or 0):
        raise ValueError("its data fails its checksum")
    return tensors


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
