"""A machine copies the parts of a checkpoint that others have written, and never takes them for its own."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.nodes.agreement import Start, agree, parse_start
from orchestrator.agent.results.copied_parts import put_away
from orchestrator.agent.results.listing import scan_own
from orchestrator.agent.results.parts import (
    Agreed,
    Hooks,
    complete_checkpoint,
    find_shards,
    is_without_index,
    version_of,
)
from tests.agent.box import RUN
from tests.agent.places import FolderPlace


class Machine:
    """One of three machines, and the folder that is their store."""

    def __init__(self, root: Path, rank: int = 1, key: str = "") -> None:
        self.layout = Layout(root / "machine")
        self.layout.prepare()
        self.task = self.layout.task(key)
        self.task.prepare()
        self.store = FolderPlace(root / "store")
        self.log: list[str] = []
        now = time.time()
        self.config = MachineConfig(
            machine=f"{RUN}-m{rank + 1}",
            run=RUN,
            provider="local",
            root=str(self.layout.root),
            created=now,
            deadline_at=now + 10,
            usd_per_hour="0",
            store_url=(root / "store").as_uri(),
            rank=rank,
        )

    def upload(self, rank: int, files: dict[str, bytes], **more: Any) -> None:
        """Upload what another machine has."""
        place = f"nodes/{rank}/" if rank else ""
        rows = []
        for path, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            self.store.write(f"{place}blobs/{sha256}", content)
            rows.append({"path": path, "bytes": len(content), "sha256": sha256, "mtime": 1_700_000_000.123456, **more})
        self.store.write(f"{place}manifest.json", json.dumps({"files": rows}).encode())

    def write(self, path: str, content: bytes) -> None:
        place = self.layout.results / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def complete(self, name: str, *, until: Callable[[], bool] = lambda: False, **holders: str) -> None:
        said = {int(rank[1:]): version for rank, version in holders.items()}
        hooks = Hooks(self.log.append, lambda _: None, until)
        complete_checkpoint(self.task, self.config, Agreed(name, said, 3), hooks)

    def files(self) -> dict[str, bytes]:
        results = self.layout.results
        return {str(path.relative_to(results)): path.read_bytes() for path in results.rglob("*") if path.is_file()}

    def own(self) -> list[str]:
        return [found.path for found in scan_own(self.layout)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


SHARDS = {
    0: {"checkpoints/s1/.metadata": b"index", "checkpoints/s1/__0_0.distcp": b"zero", "checkpoints/s2/x": b"later"},
    2: {"checkpoints/s1/__2_0.distcp": b"two", "output/x": b"a result"},
}
OWN = "checkpoints/s1/__1_0.distcp"
WHOLE = {"checkpoints/s1/.metadata", "checkpoints/s1/__0_0.distcp", OWN, "checkpoints/s1/__2_0.distcp"}


def test_all_parts_of_the_checkpoint_come_and_only_of_it(machine: Machine) -> None:
    """Its own file stays; what came isn't listed as its own, unless the command writes it again."""
    machine.write(OWN, b"one")
    for rank, files in SHARDS.items():
        machine.upload(rank, files)
    machine.complete("s1")
    assert machine.files() == {
        **{path: SHARDS[0][path] for path in sorted(WHOLE & SHARDS[0].keys())},
        OWN: b"one",
        "checkpoints/s1/__2_0.distcp": b"two",
    }
    assert machine.own() == [OWN]
    assert machine.log == ["checkpoint s1 is complete here with 9 bytes of the head, 3 bytes of node 2"]
    machine.write("checkpoints/s1/__0_0.distcp", b"mine")
    assert machine.own() == ["checkpoints/s1/__0_0.distcp", OWN]


def test_parts_are_put_away_before_an_attempt_and_come_back_without_a_download(machine: Machine) -> None:
    """Meanwhile the machine has only its own files, from which it tells what it can resume from."""
    machine.write("checkpoints/s2/own", b"own")
    for rank, files in SHARDS.items():
        machine.upload(rank, files)
    machine.complete("s1")
    put_away(machine.task)
    assert machine.files().keys() == {"checkpoints/s2/own"}
    assert not (machine.task.checkpoints / "s1").exists()
    for blob in machine.store.blobs():
        machine.store.write(f"blobs/{blob}", b"damaged")
    machine.complete("s1")
    assert machine.files()["checkpoints/s1/__0_0.distcp"] == b"zero"
    assert machine.own() == ["checkpoints/s2/own"]


def test_a_completion_that_was_cut_off_goes_on(machine: Machine) -> None:
    """What it has copied is no result of this machine in between."""
    for rank, files in SHARDS.items():
        machine.upload(rank, files)
    left = [True, False, False]
    machine.complete("s1", until=lambda: not left or left.pop())
    assert len(machine.files()) == 2
    assert machine.own() == []
    put_away(machine.task)
    machine.complete("s1")
    assert machine.files().keys() == WHOLE - {OWN}


def test_links_within_a_checkpoint_come_and_others_are_named(machine: Machine) -> None:
    """They are no results of this machine, and are put away with the rest."""
    place = "checkpoints/s1"
    machine.upload(2, {f"{place}/data/a": b"two"})
    files = json.loads(machine.store.read("nodes/2/manifest.json") or b"")["files"]
    links = {"last": "data/a", "best": "../b1", "other": "../s2/x", "out": "../../../etc"}
    files += [{**files[0], "path": f"{place}/{name}", "link": target} for name, target in links.items()]
    machine.store.write("nodes/2/manifest.json", json.dumps({"files": files[::-1]}).encode())
    machine.upload(0, {"checkpoints/b1": b"head"})
    for _ in range(2):
        machine.complete("s1")
        folder = machine.task.checkpoints / "s1"
        made = {path.name: str(path.readlink()) for path in folder.iterdir() if path.is_symlink()}
        assert made == {"last": "data/a", "best": "../b1"}
        assert (folder / "last").read_bytes() == b"two"
        assert machine.own() == []
        put_away(machine.task)
        assert not folder.exists()
    why = "it is a link to ../s2/x, out of the checkpoint"
    assert machine.log[0] == f"checkpoint s1 lacks a part of node 2, because {why}: {place}/other"


def test_files_with_the_same_numbers_are_one_checkpoint(machine: Machine) -> None:
    """A script may write the optimizer's state into a file of its own; the head's files count."""
    machine.upload(
        0, {"checkpoints/model-10.pt": b"m", "checkpoints/optim-10.pt": b"o", "checkpoints/model-9.pt": b"9"}
    )
    machine.upload(2, {"checkpoints/model-10.pt": b"another", "checkpoints/rng-10.pt": b"r"})
    machine.complete("model-10.pt")
    assert machine.files() == {
        "checkpoints/model-10.pt": b"m",
        "checkpoints/optim-10.pt": b"o",
        "checkpoints/rng-10.pt": b"r",
    }


def test_each_task_has_checkpoints_of_its_own(tmp_path: Path) -> None:
    """Also those of later modes; another task's checkpoint of the same name stays where it is."""
    machine = Machine(tmp_path, key="2-fast/voxel")
    paths = [f"{key}checkpoints/s1/x" for key in ("", "voxel/", "2-fast/", "2-fast/voxel/")]
    machine.upload(0, dict.fromkeys(paths, b"x"))
    machine.complete("s1")
    assert machine.files() == {"2-fast/voxel/checkpoints/s1/x": b"x"}
    assert machine.own() == []


def test_a_part_that_is_not_uploaded_yet_is_waited_for_and_named(machine: Machine, tmp_path: Path) -> None:
    """An older version of it isn't taken; the attempt begins without it when the time is up."""
    there = Machine(tmp_path / "other", rank=2)
    there.write("checkpoints/last/part", b"new")
    os.utime(there.task.checkpoints / "last/part", (1_700_000_000.5, 1_700_000_000.5))
    version = version_of(there.task, "last")
    machine.upload(0, {"checkpoints/last/head": b"head"})
    machine.upload(2, {"checkpoints/last/part": b"older"})
    machine.complete("last", _2=version)
    assert machine.files() == {"checkpoints/last/head": b"head"}
    assert "waiting for the parts of checkpoint last that node 2 uploads" in machine.log
    assert "checkpoint last lacks the parts of node 2, which were not uploaded in time" in machine.log
    put_away(machine.task)
    machine.upload(2, {"checkpoints/last/part": b"new"}, mtime=1_700_000_000.9)
    machine.complete("last", _2=version)
    assert machine.files() == {"checkpoints/last/head": b"head", "checkpoints/last/part": b"new"}


@pytest.mark.parametrize(
    "path",
    [
        "checkpoints/s1/../../../out",
        "/tmp/kedge-test-out",
        "checkpoints/s1/link/out",
        "checkpoints/link/out",
        "run.log",
        "output/x",
        "copied-parts/+/record.json",
    ],
)
def test_another_machines_list_can_not_make_this_one_write_elsewhere(
    machine: Machine, tmp_path: Path, path: str
) -> None:
    """Not outside of the checkpoint, and not through a link in it, or in its place."""
    (tmp_path / "elsewhere").mkdir()
    name = "link" if path.startswith("checkpoints/link") else "s1"
    machine.write("checkpoints/s1/own", b"own")
    for link in ("checkpoints/link", "checkpoints/s1/link"):
        (machine.layout.results / link).symlink_to(tmp_path / "elsewhere")
    before = machine.files()
    machine.upload(0, {path: b"evil"})
    machine.complete(name)
    assert machine.files() == before
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/kedge-test-out").exists()


@pytest.mark.parametrize("path", ["x" * 300, f"{'x' * 300}/shard", "/".join(["x" * 99] * 60)])
def test_a_part_whose_name_is_not_valid_on_this_disk_is_named(machine: Machine, path: str) -> None:
    """The rest of the checkpoint comes, without waiting for anything."""
    machine.upload(0, {f"checkpoints/s1/{path}": b"long", "checkpoints/s1/shard": b"zero"})
    machine.complete("s1")
    assert machine.files() == {"checkpoints/s1/shard": b"zero"}
    assert "lacks a part of the head, because its name isn't valid on this disk: " in machine.log[0]
    put_away(machine.task)
    assert machine.files() == {}


def test_a_damaged_part_is_named(machine: Machine) -> None:
    """Nothing of it gets the file's name."""
    machine.upload(0, {"checkpoints/s1/a": b"good", "checkpoints/s1/b": b"bad"})
    machine.store.write(f"blobs/{hashlib.sha256(b'bad').hexdigest()}", b"BAD")
    machine.complete("s1")
    assert machine.files() == {"checkpoints/s1/a": b"good"}
    assert any("lacks a part of the head" in line and "checkpoints/s1/b" in line for line in machine.log)


def test_a_checkpoint_with_lost_shards_is_not_resumed_from(machine: Machine) -> None:
    """Its index lists a file that no machine has any more; without a store, nobody can tell."""
    for name in ("s2", "s1"):
        index = pickle.dumps({number: f"__{number}_0.distcp" for number in range(3)})
        machine.write(f"checkpoints/{name}/.metadata", index)
        machine.write(f"checkpoints/{name}/__1_0.distcp", b"x")
    machine.upload(2, {"checkpoints/s1/__2_0.distcp": b"two", "checkpoints/s2/other": b""})
    shards, lacks = find_shards(machine.task, machine.config, ("s2", "s1"), 3)
    assert shards == [(".metadata", "__1_0.distcp")] * 2
    assert lacks == [("__0_0.distcp", "__2_0.distcp"), ("__0_0.distcp",)]
    own = Start(True, ("s2", "s1"), ("a", "b"), (), tuple(shards), tuple(lacks))
    other = Start(True, ("s2", "s1"), ("c", "d"), ("s2", "s1"), (("__0_0.distcp",),) * 2, rank=1)
    assert agree([parse_start(own.as_message()), parse_start(other.as_message())]).checkpoints == ("s1",)
    assert agree([own, Start()]) == Start(can_resume=False)
    alone = machine.config.replace(store_url="")
    assert find_shards(machine.task, alone, ("s2", "s1"), 3) == (shards, [])


def test_shards_without_their_index_are_not_resumed_from(machine: Machine) -> None:
    """Its writer was killed before the whole was complete; a folder of another kind needs none."""
    for path in ("s1/__1_0.distcp", "s2/__1_0.distcp", "s0/part"):
        machine.write(f"checkpoints/{path}", b"x")
    assert [is_without_index(machine.task, name) for name in ("s2", "s1", "s0")] == [True, True, False]
    head = Start(True, ("s2", "s1", "s0"), ("a", "b", "c"), ("s2",), rank=0)
    other = Start(True, ("s2", "s1", "s0"), ("d", "e", "f"), ("s2", "s1"), rank=1)
    assert agree([head, other]) == Start(True, ("s1",), holders=((0, "b"), (1, "e")))
