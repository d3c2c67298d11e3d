"""What a user reads when a checkpoint or another program's file is refused, or can't be written: the whole text."""

import shutil
from functools import partial
from pathlib import Path

import torch

from tests.trainer.refusals import text_of
from tests.trainer.shard_writers import FINGERPRINT, Writers, shard_of
from trainer.checkpoints.loading import load, load_best, load_newest
from trainer.checkpoints.remap import find_weights, remap
from trainer.checkpoints.store import CheckpointStore, Rating, load_checkpoint
from trainer.checkpoints.tree import flatten
from trainer.group.distributed import ALONE

SAVED = ("step-00000001.safetensors", "step-00000001.pt")


def damaged(folder: Path, content: bytes, name: str = SAVED[0]) -> str:
    (folder / name).write_bytes(content)
    return text_of(lambda: load_checkpoint(folder / name))


def test_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """Truncated, another program's, without a state, missing."""
    fix = "\n  fix: an earlier checkpoint is used instead"
    broken = f"{SAVED[0]} does not load\n  why: "
    assert damaged(tmp_path, b"half") == f"{broken}truncated, or not a safetensors file{fix}"
    header = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    whole = len(header).to_bytes(8, "little") + header + b"ab"
    assert damaged(tmp_path, whole) == f"{broken}not a checkpoint of format 2{fix}"
    assert damaged(tmp_path, whole[:-1]) == f"{broken}truncated, or its tensors leave gaps{fix}"
    for old, new, why in (
        (b'"U8"', b'"X9"', "a has the unknown dtype X9"),
        (b"[2]", b"[3]", "a has offsets that don't match its shape"),
        (b"[2]", b"-12", "its header is invalid: TypeError 'int' object is not iterable"),
        (b"[2]", b"2.5", "its header is invalid: TypeError 'float' object is not iterable"),
        (b"[0,2]", b"[2,0]", "a has offsets that don't match its shape"),
    ):
        if "iterable" not in why:
            assert damaged(tmp_path, whole.replace(old, new)) == f"{broken}{why}{fix}"
        else:
            assert damaged(tmp_path, whole.replace(old, new)).startswith(f"{broken}its header is invalid: TypeError ")
    negative = header.replace(b"[2]", b"[-2]")
    content = len(negative).to_bytes(8, "little") + negative + b"ab"
    assert damaged(tmp_path, content) == f"{broken}a has an impossible shape{fix}"
    CheckpointStore(tmp_path, keep=1, fingerprint={}).save(flatten({"weight": torch.arange(4.0)}), step=1)
    sound = (tmp_path / SAVED[0]).read_bytes()
    assert damaged(tmp_path, sound[:-1] + b"\1") == f"{broken}its data fails its checksum{fix}"
    assert damaged(tmp_path, sound.replace(b"weight", b"height")) == f"{broken}its header fails its checksum{fix}"
    CheckpointStore(tmp_path, keep=1, fingerprint={}).save(flatten([1]), step=1)  # type: ignore[arg-type]
    assert text_of(lambda: load_checkpoint(tmp_path / SAVED[0])) == (
        f"{SAVED[0]} does not load\n  why: it holds no state\n  fix: remove it"
    )
    torch.save({"format": 2}, tmp_path / SAVED[1])
    assert text_of(lambda: load_checkpoint(tmp_path / SAVED[1])) == (
        f"{SAVED[1]} does not load\n  why: not a checkpoint of format 1{fix}"
    )


def test_checkpoint_that_is_not_there_or_not_a_runs_is_refused(tmp_path: Path) -> None:
    """The first may have been pruned by another process; the second are weights that somebody put there."""
    assert text_of(lambda: load(tmp_path / SAVED[0], ALONE)) == (
        f"{SAVED[0]} does not load\n  why: it no longer exists\n  fix: an earlier checkpoint is used instead"
    )
    store = CheckpointStore(tmp_path, keep=1, fingerprint={})
    for state, holds in (({"model": {}, "extra": 1}, "model, extra"), ({}, "nothing")):
        store.save(flatten(state), step=1)
        assert text_of(lambda: load_newest(store, ALONE, print)) == (
            f"{SAVED[0]} is no checkpoint of a run\n"
            f"  why: it holds only: {holds}\n"
            f"  fix: move it out of {tmp_path}; to start with its weights, add --init FILE"
        )


def test_start_says_which_checkpoints_it_sets_aside(tmp_path: Path) -> None:
    """Each damaged one by name; a second of that name gets a number."""
    store, said = CheckpointStore(tmp_path, keep=2, fingerprint={}), list[str]()
    for content in (b"first", b"second", b"third"):
        (tmp_path / SAVED[0]).write_bytes(content)
        assert load_newest(store, ALONE, said.append) is None
    assert (
        said
        == [
            f"{SAVED[0]} does not load (truncated, or not a safetensors file): set aside",
            "no earlier checkpoint is left: starting from the beginning",
        ]
        * 3
    )
    kept = {path.name.removeprefix(SAVED[0]): path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {".damaged": b"first", ".damaged-2": b"second", ".damaged-3": b"third"}
    assert load_newest(store, ALONE, said.append) is None
    assert len(said) == 6


def test_unusable_best_weights_are_named(tmp_path: Path) -> None:
    """A damaged header, and another configuration's."""
    rating = Rating(metric="val_loss", value=0.5, best_is="min")
    other = CheckpointStore(tmp_path, keep=1, fingerprint={"recipe": "other"})
    state = {"fingerprint": {"recipe": "other"}, "rating": rating.dump()}
    other.save_best(flatten(state), step=2, rating=rating)
    (tmp_path / "best-00000001.safetensors").write_bytes(b"half")
    said: list[str] = []
    store = CheckpointStore(tmp_path, keep=1, fingerprint={"recipe": "ours"})
    assert load_best(store, ALONE, said.append) is None
    why = "is not used: its header is damaged, or it belongs to another configuration"
    assert said == [f"best-0000000{step}.safetensors {why}" for step in (1, 2)]


def test_sharded_checkpoint_that_lacks_something_is_refused(tmp_path: Path) -> None:
    """A shard's file, its content, the index."""
    Writers([tmp_path] * 2).save(1)
    folder = tmp_path / "step-00000001"
    fix = "\n  fix: an earlier checkpoint is used instead"
    second = shard_of(folder, 1)
    content = second.read_bytes()
    second.unlink()
    assert text_of(lambda: load(folder, ALONE)) == (
        "step-00000001 is incomplete\n"
        "  why: shard 1 of 2 is on none of these machines\n"
        f"  fix: copy step-00000001/{second.name} into the checkpoint folder, or start "
        "from the beginning with another --output-dir and --checkpoint-dir"
    )
    second.write_bytes(content[:-1])
    broken = "step-00000001 does not load\n  why: "
    assert text_of(lambda: load(folder, ALONE)) == f"{broken}one of its shards is damaged{fix}"
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert text_of(lambda: load(folder, ALONE)) == f"{broken}shard 1 of 2: its data fails its checksum{fix}"
    (folder / "index.json").unlink()
    assert text_of(lambda: load(folder, ALONE)) == f"{broken}its index is invalid{fix}"


def test_save_that_fails_says_where_to_make_room(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "gone", keep=1, fingerprint=FINGERPRINT)
    what, why, fix = text_of(lambda: store.save(flatten({}), step=3)).splitlines()
    assert what == "step-00000003.safetensors could not be written"
    assert why.startswith("  why: [Errno 2] No such file or directory: ")
    assert fix == f"  fix: make room in {tmp_path}/gone, or choose another folder with --checkpoint-dir"


def test_remap_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    """The old one's content, the new one's name."""
    old, new = tmp_path / "old.pth", tmp_path / "new.safetensors"
    torch.save({"model": {"weight": torch.ones(2)}}, old)
    name = "choose another name that ends in .safetensors"
    assert text_of(lambda: remap(old, tmp_path / "new.pt")) == (
        f"{tmp_path}/new.pt cannot be written\n  why: the output format is .safetensors\n  fix: {name}"
    )
    shutil.copy(old, new)
    assert text_of(lambda: remap(old, new)) == (f"{new} cannot be written\n  why: it already exists\n  fix: {name}")
    new.unlink()
    assert text_of(lambda: remap(old, tmp_path / "gone" / "new.safetensors")).splitlines()[::2] == [
        f"{tmp_path}/gone/new.safetensors cannot be written",
        "  fix: choose a folder that exists and has room",
    ]
    assert remap(old, new) == f"{new}: 1 tensors, 2 values, from model"
    new.unlink()
    key = "\n  fix: say where they are with --key KEY/KEY"
    for content, wanted, why in (
        (7, None, "it holds a int"),
        ({"a": 1, "b": {}}, None, "none of the usual keys is there; its keys are: a, b"),
        ({str(number): number for number in range(10)}, None,
         "none of the usual keys is there; its keys are: 0, 1, 2, 3, 4, 5, 6, 7"),
        ({"a": {"b": 1}}, "a/c", "there is no c; its keys are: b"),
        ({"a": 1}, "a/b", "there is no b"),
    ):  # fmt: skip
        assert text_of(partial(find_weights, content, wanted)) == (f"no weights were found\n  why: {why}{key}")
    torch.save({"a": torch.ones(2).to_sparse(), "b": torch.ones(1), "c": torch.ones(2, dtype=torch.complex128)}, old)
    assert text_of(lambda: remap(old, new)) == (
        f"the weights in {old} cannot be converted\n"
        "  why: quantized or sparse: a, c\n"
        "  fix: save them dense, in a dtype that safetensors has"
    )
    torch.save({"model._orig_mod.a": torch.ones(1), "model.a": torch.ones(1)}, old)
    assert text_of(lambda: remap(old, new)) == (
        f"the weights in {old} cannot be converted\n"
        "  why: several weights differ only by their wrappers\n"
        "  fix: choose one of the copies with --key"
    )
    old.write_bytes(b"no checkpoint at all")
    lines = text_of(lambda: remap(old, new)).splitlines()
    assert lines[0] == f"{old} does not load"
    assert lines[2] == "  fix: give a file of torch.save or safetensors, or a folder of shards"
    assert text_of(lambda: remap(tmp_path, new)) == (
        f"{tmp_path} does not load\n  why: its index is invalid\n  fix: give another of the checkpoints"
    )
    torch.save({"activation": torch.nn.functional.relu}, old)
    _, why, _ = text_of(lambda: remap(old, new)).splitlines()
    assert why.startswith("  why: WeightsUnpickler error: Unsupported global: GLOBAL torch.nn.functional.relu was ")
    assert "\n" not in why
    endless: dict[str, object] = {}
    endless["model"] = endless
    assert text_of(lambda: find_weights(endless)).startswith("no weights were found")
    for length, refused in (
        (255, f"loading it would call {'a' * 127}.{'b' * 127}"),
        (256, "it names code in more than 255 characters"),
    ):
        old.write_bytes(f"c{'a' * 127}\n{'b' * (length - 128)}\n.".encode())
        assert text_of(lambda: remap(old, new)).splitlines()[1] == f"  why: {refused}"
    torch.save({"model": {"weight": torch.ones(2)}, "where": Path()}, old)
    assert text_of(lambda: remap(old, new)) == (
        f"{old} was not loaded: that could run code\n"
        "  why: loading it would call pathlib.PosixPath\n"
        "  fix: if you trust it, load it in Python and save only the weights: torch.save(model.state_dict(), FILE)"
    )
