"""The bytes of a checkpoint, as every release so far writes and reads them."""

import io
import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import harness
from tests.trainer.shard_writers import Writers, shard_of
from trainer.checkpoints.document import as_bytes, read_flat, read_tensors, write_document
from trainer.checkpoints.header import read_header
from trainer.checkpoints.shards import (
    INDEX,
    MILESTONE,
    Index,
    Shard,
    chunk_rows,
    is_milestone,
    is_whole,
    read_index,
    remove_checkpoint,
)
from trainer.checkpoints.tree import Flat, Slice, flatten, unflatten

HEADER_BYTES = 4096
PLAIN = {
    "model": {
        "w": {"$tensor": "w", "layout": "channels_last"},
        "tied": {"$tensor": "w", "layout": "channels_last"},
        "b": {"$tensor": "b"},
    },
    "w": {"$tensor": "w'"},
    "volume": {"$tensor": "volume", "layout": "channels_last_3d"},
    "rng": {"$tuple": [3, {"$tuple": [None, True]}]},
    "keys": {"$dict": [[0, 1.5], ["$x", []]]},
    "part": {"$tensor": "part"},
}
HEADER = (
    r'{"b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"w":{"dtype":"F32","shape":[1,2,4,2],"data_offsets":'
    r'[16,80]},"volume":{"dtype":"F32","shape":[1,2,2,2,2],"data_offsets":[80,144]},"part":{"dtype":"F32","shape":[2,1],'
    r'"data_offsets":[144,152]},"w' + "'" + r'":{"dtype":"F16","shape":[1,1,1,2,2],"data_offsets":[152,160]},'
    r'"__metadata__":{"format":"pt","kedge.format":"2","kedge.state":"{\"model\":{\"w\":{\"$tensor\":\"w\",\"layout\":'
    r"\"channels_last\"},\"tied\":{\"$tensor\":\"w\",\"layout\":\"channels_last\"},\"b\":{\"$tensor\":\"b\"}},\"w\":"
    r"{\"$tensor\":\"w" + "'" + r"\"},\"volume\":{\"$tensor\":\"volume\",\"layout\":\"channels_last_3d\"},\"rng\":"
    r"{\"$tuple\":[3,{\"$tuple\":[null,true]}]},\"keys\":{\"$dict\":[[0,1.5],[\"$x\",[]]]},\"part\":{\"$tensor\":"
    r'\"part\"}}","kedge.data":"2985810161","kedge.milestone":"yes","kedge.rows":"{\"part\":[4,7]}",'
    r'"kedge.header":"1803480019"}}'
)


def make_state() -> dict[str, Any]:
    """Every kind of value: memory orders, tied weights, equal names, tuples, keys, rows."""
    weight = torch.arange(16.0).reshape(1, 2, 4, 2).to(memory_format=torch.channels_last)
    return {
        "model": {"w": weight, "tied": weight.detach(), "b": torch.tensor([1, 2])},
        "w": torch.zeros(1, 1, 1, 2, 2).half(),
        "volume": torch.zeros(1, 2, 2, 2, 2).to(memory_format=torch.channels_last_3d),
        "rng": (3, (None, True)),
        "keys": {0: 1.5, "$x": []},
        "part": Slice(tensor=torch.ones(2, 1), begin=4, total=7),
    }


def contiguous(flat: Flat) -> Flat:
    return replace(flat, tensors={name: tensor.contiguous() for name, tensor in flat.tensors.items()})


def written(flat: Flat, **options: Any) -> bytes:
    stream = io.BytesIO()
    write_document(stream, flat, **options)
    return stream.getvalue()


def test_state_without_its_tensors_is_plain_json() -> None:
    """Tied tensors are one; a weight keeps its name, and another of that name gets a mark."""
    flat = flatten(make_state())
    assert flat.plain == json.loads(json.dumps(flat.plain)) == PLAIN
    assert {name: tuple(tensor.shape) for name, tensor in flat.tensors.items()} == {
        "w": (1, 2, 4, 2), "b": (2,), "w'": (1, 1, 1, 2, 2), "volume": (1, 2, 2, 2, 2), "part": (2, 1),
    }  # fmt: skip
    assert flat.rows == {"part": (4, 7)}
    part = unflatten(flat.plain, {**flat.tensors, "part": make_state()["part"]})["part"]
    assert (part.begin, part.total) == (4, 7)


@pytest.mark.parametrize("key", ["$tuple", "$dict", "$tensor", "$"])
def test_keys_that_look_like_ours_are_kept(key: str) -> None:
    """A dict with such a key alone is written as pairs."""
    flat = flatten({"a": {key: [1]}})
    assert flat.plain == {"a": {"$dict": [[key, [1]]]}}
    assert unflatten(flat.plain, {}) == {"a": {key: [1]}}


def test_file_is_the_same_to_the_byte(tmp_path: Path) -> None:
    """A header of whole pages, then the tensors, those with large elements first; read again, it is the same state."""
    flat = contiguous(flatten(make_state()))
    content = written(flat, is_milestone=True)
    assert content[:8] == (HEADER_BYTES - 8).to_bytes(8, "little")
    assert content[8:HEADER_BYTES].decode() == HEADER.ljust(HEADER_BYTES - 8)
    data = b"".join(bytes(as_bytes(flat.tensors[name])) for name in ("b", "w", "volume", "part", "w'"))
    assert content[HEADER_BYTES:] == data
    path = tmp_path / "file"
    path.write_bytes(content)
    read, header = read_flat(path), read_header(path)
    assert (read.plain, read.rows) == (PLAIN, {"part": (4, 7)})
    harness.assert_equal(read.tensors, {name: flat.tensors[name] for name in read.tensors}, "tensors")
    assert (header.is_milestone, header.checksum, header.data_crc32) == (True, 1803480019, 2985810161)
    path.write_bytes(written(contiguous(flatten({"a": torch.ones(1)}))))
    header = read_header(path)
    assert sorted(header.metadata) == ["format", "kedge.data", "kedge.format", "kedge.header", "kedge.state"]
    assert not header.is_milestone


def test_header_that_fills_a_page_gets_no_other_one() -> None:
    """And one byte more does."""
    short = len(written(flatten({"a": ""})).rstrip(b" "))
    for more, size in ((HEADER_BYTES - short, HEADER_BYTES), (HEADER_BYTES - short + 1, 2 * HEADER_BYTES)):
        # The checksum in the header may have fewer digits.
        sizes = {len(written(flatten({"a": "x" * (more + digits)}))) for digits in range(-2, 3)}
        assert size in sizes


def foreign(entry: dict[str, Any], data: bytes, metadata: dict[str, str] | None = None) -> bytes:
    """Another writer's file."""
    content = {"a": entry, **({"__metadata__": metadata} if metadata else {})}
    header = json.dumps(content).encode()
    return struct.pack("<Q", len(header)) + header + data


def test_file_of_another_writer_has_no_state_but_its_tensors(tmp_path: Path) -> None:
    """With metadata of its own, unaligned, and with a tensor of no elements and no dimensions."""
    path = tmp_path / "file"
    path.write_bytes(foreign({"dtype": "F16", "shape": [], "data_offsets": [0, 2]}, b"\0\x3c", {"made": "elsewhere"}))
    harness.assert_equal(read_tensors(path), {"a": torch.tensor(1.0).half()}, "tensors")
    header = read_header(path)
    assert (header.metadata, header.data_crc32, header.rows) == ({"made": "elsewhere"}, None, {})
    for read in (lambda: header.plain, lambda: header.checksum):
        with pytest.raises(ValueError, match=r"^not a checkpoint of format 2$"):
            read()
    path.write_bytes(foreign({"dtype": "F16", "shape": [0, 2**62], "data_offsets": [0, 0]}, b""))
    assert read_tensors(path)["a"].shape == (0, 2**62)


@pytest.mark.parametrize("rows", [[-1, 9], [6, 7], [0, 1]])
def test_rows_beside_the_tensor_are_refused(rows: list[int], tmp_path: Path) -> None:
    """A slice of two rows that begins before the first, and two that end after the last."""
    path = tmp_path / "file"
    path.write_bytes(
        foreign({"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, b"ab", {"kedge.rows": json.dumps({"a": rows})})
    )
    with pytest.raises(ValueError, match="a has rows that don't match its shape"):
        dict(read_header(path).rows)


@pytest.mark.parametrize("rows", [[0, 2], [5, 7], [1, 9]])
def test_rows_within_the_tensor_are_read(rows: list[int], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        foreign({"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, b"ab", {"kedge.rows": json.dumps({"a": rows})})
    )
    assert read_header(path).rows == {"a": tuple(rows)}


def test_index_names_the_shards_by_rank(tmp_path: Path) -> None:
    """With their sizes and their headers' checksums; the whole text."""
    Writers([tmp_path] * 2).save(1, is_milestone=True)
    folder = tmp_path / "step-00000001"
    shards = [
        Shard(file=path.name, bytes=path.stat().st_size, checksum=read_header(path).checksum)
        for path in (shard_of(folder, 0), shard_of(folder, 1))
    ]
    listed = ", ".join(f'{{"file": "{one.file}", "bytes": {one.bytes}, "checksum": {one.checksum}}}' for one in shards)
    assert (folder / INDEX).read_text() == (
        f'{{"format": "kedge shards 1", "shards": [{listed}], "about": {{"milestone": true}}}}\n'
    )
    assert read_index(folder) == Index(shards=tuple(shards), about={MILESTONE: True})
    assert len({path.name.split(".")[1] for path in folder.glob("*.safetensors")}) == 1
    assert all(one.is_in(folder) for one in shards)
    assert not replace(shards[0], checksum=1).is_in(folder)
    assert not replace(shards[0], bytes=1).is_in(folder)
    assert not replace(shards[0], file="none").is_in(folder)


NAMED = '{"format": "kedge shards 1", "shards": [{"file": "%s"}]}'
NO_INDEX = {
    "{}": "the index is invalid: KeyError 'format'",
    '{"format": "kedge shards 1", "shards": []}': "not an index of this format",
    '{"format": "kedge shards 2", "shards": [1]}': "not an index of this format",
    NAMED % "../0-of-1.01234567.safetensors": "invalid shard name",
    NAMED % "0-of-1.01234567.safetensors": "the index is invalid: KeyError 'bytes'",
}


@pytest.mark.parametrize(("text", "why"), NO_INDEX.items())
def test_index_that_is_none_is_refused(text: str, why: str, tmp_path: Path) -> None:
    """With a reason."""
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        read_index(tmp_path)


def test_each_save_of_a_step_has_shard_names_of_its_own(tmp_path: Path) -> None:
    """The same for all processes, and no earlier save's: its files stay whole until the index names the new ones."""
    writers, folder = Writers([tmp_path] * 3), tmp_path / "step-00000001"
    saves = []
    for _ in range(3):
        assert writers.save(1) == [None] * 3
        saves.append({path.name.split(".")[1] for path in folder.glob("*.safetensors")})
    assert [len(names) for names in saves] == [1, 1, 1]
    assert len(set.union(*saves)) == 3


@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_checkpoint_is_removed_whatever_it_is(kind: str, tmp_path: Path) -> None:
    """Also if another process has removed it meanwhile."""
    path = tmp_path / "step-00000001"
    if kind == "folder":
        Writers([tmp_path] * 2).save(1)
    elif kind == "file":
        path.write_bytes(b"")
    remove_checkpoint(path)
    assert not path.exists()


def test_folder_is_a_checkpoint_once_it_has_an_index(tmp_path: Path) -> None:
    """A file always is; a damaged one is no milestone."""
    Writers([tmp_path] * 2).save(1, is_milestone=True)
    Writers([tmp_path] * 2, keep=9).save(2)
    first, second = tmp_path / "step-00000001", tmp_path / "step-00000002"
    assert (is_whole(first), is_milestone(first)) == (True, True)
    assert (is_whole(second), is_milestone(second)) == (True, False)
    (first / INDEX).unlink()
    assert (is_whole(first), is_milestone(first)) == (False, False)
    file = tmp_path / "step-00000003.safetensors"
    file.write_bytes(written(flatten({}), is_milestone=True))
    assert (is_whole(file), is_milestone(file)) == (True, True)
    file.write_bytes(b"half")
    assert (is_whole(file), is_milestone(file)) == (True, False)


@pytest.mark.parametrize("total", [0, 1, 4, 7, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rows_are_cut_as_torch_cuts_them(total: int, size: int) -> None:
    """Some of the last processes may have none."""
    chunks = [chunk.tolist() for chunk in torch.arange(total).chunk(size)] if total else []
    ours = [list(chunk_rows(total, rank, size)) for rank in range(size)]
    assert ours == chunks + [[]] * (size - len(chunks))
