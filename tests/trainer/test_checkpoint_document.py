"""A checkpoint as a file: what is restored, which programs can read it, and what is refused."""

import json
import pickle
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.base.errors import DamagedCheckpointError
from trainer.checkpoints.document import (
    map_document,
    read_document,
    read_tensors,
    read_verified_document,
    write_document,
)
from trainer.checkpoints.header import DTYPES
from trainer.checkpoints.store import load_checkpoint
from trainer.checkpoints.tree import Flat, flatten, unflatten

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner)
    ),
    max_leaves=20,
)


def write(path: Path, state: dict[str, Any]) -> Path:
    flat = flatten(state)
    tensors = {name: tensor.detach().contiguous() for name, tensor in flat.tensors.items()}
    with path.open("wb") as stream:
        write_document(stream, Flat(plain=flat.plain, tensors=tensors))
    return path


def training_state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": [random.Random(1).getstate()]}


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        assert ours == theirs
        assert type(ours) is type(theirs)


def test_training_state_is_restored(tmp_path: Path) -> None:
    """Weights, optimizer (with its integer keys and tuples) and Python's random state, to the bit."""
    state = training_state()
    assert_equal(read_document(write(tmp_path / "a.safetensors", state)), dict(state, model=dict(state["model"])))


@given(plain=st.dictionaries(st.text(), PLAIN))
@settings(deadline=None, max_examples=100)
def test_plain_values_survive_json(plain: dict[str, Any]) -> None:
    """Keys that aren't strings, names that look like ours ("$tuple"), tuples and empty containers."""
    assert_equal(unflatten(json.loads(json.dumps(flatten(plain).plain)), {}), plain)


@pytest.mark.parametrize("name", DTYPES)
def test_each_kind_of_tensor_is_restored(name: str, tmp_path: Path) -> None:
    """Each dtype of the format: some numbers, a scalar, and an empty tensor."""
    values = torch.tensor([0, 1, 1, 0, 1]).to(DTYPES[name])
    state = {"some": values, "scalar": values[1], "none": values[:0].reshape(0, 7)}
    read = read_document(write(tmp_path / "a.safetensors", state))
    for key, tensor in state.items():
        assert (read[key].dtype, read[key].shape) == (tensor.dtype, tensor.shape)
        assert read[key].reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist()


def test_channels_last_stays_channels_last(tmp_path: Path) -> None:
    """The memory order is restored as well: an optimizer's state keeps the order of its weights."""
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    read = read_document(write(tmp_path / "a.safetensors", {"images": images}))["images"]
    assert torch.equal(read, images)
    assert read.stride() == images.stride()


def test_mapped_file_holds_the_same_state_and_is_not_written_to(tmp_path: Path) -> None:
    """All kinds of tensors, in their memory order, in either form of reading without the data's checksum."""
    state = {**training_state(), "large": torch.randn(2, 3, 100, 100).to(memory_format=torch.channels_last)}
    state |= {"big": torch.randn(70_000), "odd": torch.ones(70_001).bool(), "none": torch.zeros(0, 3)}
    path = write(tmp_path / "step-00000001.safetensors", state)
    content = path.read_bytes()
    for read in (map_document, read_verified_document):
        found = load_checkpoint(path, read=read)
        assert_equal(found, dict(state, model=dict(state["model"])))
        assert found["large"].stride() == state["large"].stride()
        found["big"].zero_()
        assert path.read_bytes() == content
        damaged = tmp_path / "step-00000002.safetensors"
        damaged.write_bytes(content.replace(b"kedge.state", b"kedge.stale"))
        with pytest.raises(DamagedCheckpointError):
            load_checkpoint(damaged, read=read)


def test_shared_weights_are_written_once_and_read_as_both(tmp_path: Path) -> None:
    """Tied weights are stored once; each loaded name has them."""
    weight = torch.randn(1000)
    path = write(tmp_path / "a.safetensors", {"model": {"in": weight, "out": weight.detach()}})
    assert path.stat().st_size < 4096 + 4000 + 1
    assert torch.equal(read_document(path)["model"]["out"], weight)


def test_equal_names_do_not_hide_each_other(tmp_path: Path) -> None:
    """A weight may have the same name as another part of the state."""
    state = {"model": {"rng/0": torch.zeros(1)}, "rng": [torch.ones(1)]}
    assert_equal(read_document(write(tmp_path / "a.safetensors", state)), state)


def test_safetensors_itself_reads_the_weights_under_their_names(tmp_path: Path) -> None:
    """The library loads the file, and the names of the model's weights are the model's."""
    state = training_state()
    read = safetensors.torch.load_file(write(tmp_path / "a.safetensors", state))
    for name, tensor in state["model"].items():
        assert torch.equal(read[name], tensor)


def test_files_of_safetensors_itself_are_read(tmp_path: Path) -> None:
    """Another writer's tensors, by name; but the file is no checkpoint."""
    path = tmp_path / "step-00000001.safetensors"
    safetensors.torch.save_file({"weight": torch.arange(5), "half": torch.ones(2, 2).half()}, path)
    read = read_tensors(path)
    assert torch.equal(read["weight"], torch.arange(5))
    assert read["half"].dtype == torch.float16
    with pytest.raises(DamagedCheckpointError, match="step-00000001"):
        load_checkpoint(path)


def test_every_flipped_bit_that_matters_is_noticed(tmp_path: Path) -> None:
    """One flipped bit anywhere, header or data: refused, or (in the padding) the same state."""
    state = {"model": {"weight": torch.arange(6.0)}, "step": 7}
    path = write(tmp_path / "step-00000007.safetensors", state)
    sound = path.read_bytes()
    refused = 0
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert_equal(load_checkpoint(path), state)
        except DamagedCheckpointError:
            refused += 1
    assert refused >= len(sound) - 8


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.9999])
def test_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    """Cut off within the length, the header or the data."""
    path = write(tmp_path / "step-00000001.safetensors", training_state())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedCheckpointError, match="does not load"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [1000000], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 8]}}',
        b'{"__metadata__": {"kedge.format": "2"}}',
        b"[" * 100_000,
    ],
    ids=["list", "number", "gap", "too small", "negative", "unknown kind", "no checksum", "deep"],
)
def test_nonsensical_header_is_refused(header: bytes, tmp_path: Path) -> None:
    """Whatever a header claims: one clear error, no memory allocated for it, no other traceback."""
    path = tmp_path / "step-00000001.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(DamagedCheckpointError):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "lie",
    [
        {"kedge.state": None},
        {"kedge.state": 7},
        {"kedge.state": "[" * 100_000},
        {"kedge.state": '{"$dict": [[1]]}'},
        {"kedge.state": '{"$tensor": "a", "layout": "channels_last"}'},
        {"kedge.rows": '{"a": [0, Infinity]}'},
        {"kedge.rows": '{"b": [0, 1]}'},
        {"shape": [2**70, 0]},
        {"shape": [2**62, 2**62, 0]},
        {"shape": [1.0]},
    ],
    ids=["none", "number", "deep", "pair", "layout", "endless", "of nothing", "huge", "huge twice", "fraction"],
)
def test_nonsensical_state_with_valid_checksums_is_refused(lie: dict[str, Any], tmp_path: Path) -> None:
    """Somebody wrote it on purpose."""
    shape = lie.get("shape", [2])
    size = 0 if 0 in shape else 4 if 1.0 in shape else 8
    metadata = {"kedge.format": "2", "kedge.state": "{}", "kedge.data": str(zlib.crc32(bytes(size)))}
    metadata |= {name: value for name, value in lie.items() if name != "shape" and value is not None}
    if lie.get("kedge.state", "") is None:
        del metadata["kedge.state"]
    content = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}, "__metadata__": metadata}
    checksum = zlib.crc32(json.dumps(content, separators=(",", ":")).encode())
    content["__metadata__"] = {**metadata, "kedge.header": str(checksum)}
    header = json.dumps(content, separators=(",", ":")).encode()
    path = tmp_path / "step-00000001.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(DamagedCheckpointError):
        load_checkpoint(path)


def test_checkpoint_of_format_1_is_read(tmp_path: Path) -> None:
    """A run of the first release, written with torch.save, can be resumed."""
    path = tmp_path / "step-00000012.pt"
    torch.save({"format": 1, "model": {"weight": torch.ones(2)}}, path)
    assert torch.equal(load_checkpoint(path)["model"]["weight"], torch.ones(2))
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(DamagedCheckpointError, match="step-00000012"):
        load_checkpoint(path)


def test_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    """A file with a pickled call counts as damaged, whatever its name, and the call isn't made."""

    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "owned",))

    for name in ("step-00000001.pt", "step-00000002.safetensors"):
        torch.save({"format": 1, "payload": Payload()}, tmp_path / name)
        with pytest.raises(DamagedCheckpointError):
            load_checkpoint(tmp_path / name)
        (tmp_path / name).write_bytes(pickle.dumps(Payload()))
        with pytest.raises(DamagedCheckpointError):
            load_checkpoint(tmp_path / name)
    assert not (tmp_path / "owned").exists()


def test_what_a_checkpoint_cannot_hold_is_named(tmp_path: Path) -> None:
    """An object in the state, a dtype that the format lacks: the error says where it is."""
    with pytest.raises(TypeError, match="progress/0 is a PosixPath"):
        flatten({"progress": [Path()]})
    with pytest.raises(TypeError, match=r"phase is torch\.complex128"), (tmp_path / "a").open("wb") as stream:
        write_document(stream, flatten({"phase": torch.zeros(2, dtype=torch.complex128)}))
