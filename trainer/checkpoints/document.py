"""A state as one safetensors file: its tensors, the rest of it as JSON in the header, and checksums of both.

    8 bytes    the header's length
    header     JSON: {"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}, spaces up to a page's end
    data       the tensors, largest elements first, so that each lies at a multiple of its element's size

What is only some rows of a tensor says which ones: such a file is a shard, see `shards`. Any reader of safetensors
reads it (https://huggingface.co/docs/safetensors, "Format", 2026-11), the model's weights under their own names; files
of other writers are read as well. Nothing in it can be code.

Why not torch.save with weights_only=True: its reader doesn't compare the checksums that it writes, and with them
compared is no faster (benchmarks/results/checkpoint.txt).
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from trainer.checkpoints.header import Entry, Header, render_header, take_header, understand
from trainer.checkpoints.tree import Flat, unflatten


def write_document(stream: BinaryIO, flat: Flat) -> None:
    """Write a state whose tensors lie contiguously in main memory.

    Raises:
        OSError: what the disk says.
        TypeError: a tensor is of a kind that safetensors doesn't have; the message names it.
    """
    tensors = sorted(flat.tensors.items(), key=lambda item: -item[1].element_size())
    pieces = join_neighbours([tensor for _, tensor in tensors])
    stream.write(render_header(flat, tensors, pieces))
    for piece in pieces:
        stream.write(piece)


def read_document(path: Path) -> Any:
    """Read the state in a file onto the CPU, checksums verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it is cut short, altered, not one of ours, or one of several shards.
    """
    flat = read_flat(path)
    _refuse_shard(flat.rows)
    return understand(lambda: unflatten(flat.plain, flat.tensors))


def read_flat(path: Path) -> Flat:
    """Read a file onto the CPU as it was written, checksums verified.

    Raises:
        OSError: it cannot be read.
        ValueError: it is cut short, altered, or not one of ours.
    """
    with path.open("rb", buffering=0) as stream:
        header = take_header(stream)
        return Flat(plain=header.plain, rows=header.rows, tensors=understand(lambda: _read_tensors(stream, header)))


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of any safetensors file onto the CPU, by name.

    Raises:
        OSError: it cannot be read.
        ValueError: it isn't what the format says, or is one of several shards.
    """
    with path.open("rb", buffering=0) as stream:
        header = take_header(stream)
        _refuse_shard(header.metadata.get("kedge.rows"))
        return understand(lambda: _read_tensors(stream, header))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """View the bytes of a contiguous tensor in main memory."""
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)


def join_neighbours(tensors: Sequence[torch.Tensor]) -> list[memoryview]:
    """View the bytes of contiguous tensors in main memory, in order; what lies one after another as one piece."""
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


def _read_tensor(stream: BinaryIO, entry: Entry) -> torch.Tensor:
    # Each has memory of its own: a view of one block would keep all of it alive.
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
        raise ValueError("a shard, which is nothing without the others: give the folder that it is in")
