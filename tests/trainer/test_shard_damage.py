"""Damaged or forged shards are set aside, and the checkpoint before them is used."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import harness, join_shards
from tests.trainer.shard_writers import Writers, cut, shard_of
from trainer.base.errors import DamagedCheckpointError
from trainer.checkpoints.document import write_document
from trainer.checkpoints.loading import load, load_newest
from trainer.checkpoints.shards import INDEX
from trainer.checkpoints.tree import Flat, flatten
from trainer.group.distributed import ALONE


def flip_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))


def truncate(folder: Path) -> None:
    shard = shard_of(folder, 1)
    shard.write_bytes(shard.read_bytes()[:-1])


def swap_with_another_step(folder: Path) -> None:
    shutil.copy(shard_of(folder.with_name("step-00000001"), 1), shard_of(folder, 1))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped bit": (lambda folder: flip_last_byte(shard_of(folder, 1)), "fails its checksum"),
    "shard cut short": (truncate, "one of its shards is damaged"),
    "no shard": (lambda folder: shard_of(folder, 0).unlink(), "shard 0 of 2 is on none of these machines"),
    "another step's shard": (swap_with_another_step, "one of its shards is damaged"),
    "index cut short": (lambda folder: (folder / INDEX).write_text('{"format": '), "index is invalid"),
    "index of lists": (lambda folder: (folder / INDEX).write_text("[" * 10_000), "index is invalid"),
    "index of another program": (lambda folder: (folder / INDEX).write_text('{"format": "2"}'), "index is invalid"),
    "index of a later version": (
        lambda folder: (folder / INDEX).write_text((folder / INDEX).read_text().replace("shards 1", "shards 2")),
        "index is invalid",
    ),
    "index that is endless": (
        lambda folder: (folder / INDEX).write_text(
            (folder / INDEX).read_text().replace('"bytes": ', '"bytes": Infinity, "was": ', 1)
        ),
        "index is invalid",
    ),
    "index that leads out of the folder": (
        lambda folder: (folder / INDEX).write_text(
            (folder / INDEX).read_text().replace('"file": "', '"file": "../step-00000001/', 1)
        ),
        "index is invalid",
    ),
    "index without shards": (
        lambda folder: (folder / INDEX).write_text('{"format": "kedge shards 1", "shards": [], "about": {}}'),
        "index is invalid",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_sharded_checkpoint_is_set_aside_and_the_one_before_used(damage: str, tmp_path: Path) -> None:
    """Whatever is wrong with it, it keeps its content under another name, and is reported."""
    act, why = DAMAGES[damage]
    store, said = Writers([tmp_path] * 2).stores[0], list[str]()
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    writers.save(2)
    act(tmp_path / "step-00000002")
    harness.assert_equal(load_newest(store, ALONE, said.append), join_shards.make_state(1), damage)
    assert why in said[0]
    assert (tmp_path / "step-00000002.damaged").is_dir()
    assert store.newest_name() == "step-00000001"


@pytest.mark.parametrize(
    "rows",
    [(-1, 9), (4, 6), (0, 7), (4, 900), ("a", 7), (4, float("inf")), (0, 1e30), (0, 10**15)],
    ids=["negative", "beyond", "twice", "other total", "words", "endless", "huge", "more than memory"],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_shard_that_lies_about_its_rows_is_damaged(rank: int, rows: tuple[Any, Any], tmp_path: Path) -> None:
    """Its checksums are right: somebody forged it."""
    Writers([tmp_path] * 2).save(1)
    folder = tmp_path / "step-00000001"
    if (rank, rows) == (0, (0, 7)):
        rows = (0, 8)  # otherwise its rows are right
    index = json.loads((folder / INDEX).read_text())
    whole = join_shards.make_state(1)
    flat = flatten(cut(whole, rank, 2))
    tensors = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows or rank == 0}
    lying = replace(flat, tensors=tensors, rows={**flat.rows, "weight": rows})
    index["shards"][rank] |= forge(shard_of(folder, rank), lying)
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DamagedCheckpointError) as refused:
        load(folder, ALONE)
    assert re.fullmatch(r"shard [01] of 2(: .+| lacks its rows of weight)", refused.value.why)


def replace_shard(folder: Path, rank: int, **parts: Any) -> None:
    """Forge one of two shards of the usual state."""
    flat = flatten(cut(join_shards.make_state(1), rank, 2))
    tensors = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows or rank == 0}
    lying = replace(flat, **{"tensors": tensors, **{key: make(flat, tensors) for key, make in parts.items()}})
    index = json.loads((folder / INDEX).read_text())
    index["shards"][rank] |= forge(shard_of(folder, rank), lying)
    (folder / INDEX).write_text(json.dumps(index))


LIES: dict[str, tuple[int, dict[str, Any], str]] = {
    "other dtype": (
        1,
        {"tensors": lambda _, own: {**own, "weight": own["weight"].double()}},
        "shard 1 of 2 lacks its rows of weight",
    ),
    "other width": (
        1,
        {"tensors": lambda _, own: {**own, "weight": own["weight"][:, :2].clone()}},
        "shard 1 of 2 lacks its rows of weight",
    ),
    "no tensor": (
        1,
        {
            "tensors": lambda _, own: {name: value for name, value in own.items() if name != "weight"},
            "rows": lambda flat, _: {name: value for name, value in flat.rows.items() if name != "weight"},
        },
        "shard 1 of 2 lacks its rows of weight",
    ),
    "a list": (0, {"plain": lambda *_: [1]}, "it holds no state"),
    "an unknown tensor": (0, {"plain": lambda *_: {"a": {"$tensor": "none"}}}, "its state is invalid: KeyError 'none'"),
}


@pytest.mark.parametrize("lie", LIES)
def test_forged_shard_is_damaged(lie: str, tmp_path: Path) -> None:
    """With valid checksums: it doesn't match the first shard, or its state isn't one."""
    rank, parts, why = LIES[lie]
    Writers([tmp_path] * 2).save(1)
    folder = tmp_path / "step-00000001"
    replace_shard(folder, rank, **parts)
    with pytest.raises(DamagedCheckpointError) as refused:
        load(folder, ALONE)
    assert refused.value.why == why


def forge(path: Path, flat: Flat) -> dict[str, int]:
    with path.open("wb") as stream:
        write_document(stream, flat)
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    checksum = json.loads(header[8 : 8 + length])["__metadata__"]["kedge.header"]
    return {"bytes": path.stat().st_size, "checksum": int(checksum)}
