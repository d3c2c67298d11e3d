"""Data that machines fetch into a data volume: it outlives them, and is never taken for other data."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.agent.data.mirror import execute as pull_data
from orchestrator.agent.s3.store import FolderStore
from tests.adapters.first_boot.scratch import needs_root
from tests.agent.sources.data_sets import ADDRESS as MIRRORED
from tests.agent.sources.data_sets import lay, pin_of, seen
from tests.agent.sources.machine import Machine, files_below, zipped
from tests.agent.sources.web import Hub, Serve, Site

ANOTHER_DISK = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not ANOTHER_DISK.is_dir(), reason="another file system than the tests' own is needed")

Next = Callable[[], Machine]


@pytest.fixture
def volume() -> Iterator[Path]:
    """A data volume: a folder of another file system."""
    with tempfile.TemporaryDirectory(dir=ANOTHER_DISK, prefix="kedge-volume-") as folder:
        yield Path(folder)


@pytest.fixture
def next_machine(tmp_path: Path, volume: Path) -> Next:
    """Make machines one after the other, each with the volume, and nothing of those before."""
    count = iter(range(100))

    def make() -> Machine:
        machine = Machine(tmp_path / f"machine {next(count)}")
        machine.attach(volume)
        return machine

    return make


@pytest.fixture
def hub(serve: Serve) -> Hub:
    return serve(Hub({"a.bin": b"a" * 1000, "deep/b.txt": b"b"}))


ADDRESS = "hf://datasets/me/faces"


def test_the_next_machine_finds_the_data_and_downloads_nothing(
    volume: Path, next_machine: Next, hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even if the volume is mounted elsewhere. The log says which version is there."""
    first = next_machine()
    first.layout.run_file.touch()
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        first.layout.run_file.rename(volume / "file")
    faces = first.fetch(ADDRESS, "sets/faces", HF_ENDPOINT=hub.url)
    assert files_below(faces) == hub.files
    assert (volume / "sets/faces/a.bin").exists()
    assert not (first.layout.data / ".fetching").exists()
    assert not list((volume / ".fetching").iterdir())
    asked = len(hub.asked)
    second = next_machine()
    second.fetch(ADDRESS, "sets/faces", HF_ENDPOINT=hub.url)
    elsewhere = Machine(second.layout.root.with_name("elsewhere"))
    elsewhere.attach(volume, "vol")
    assert files_below(elsewhere.fetch(ADDRESS, "sets/faces")) == hub.files
    assert len(hub.asked) == asked
    assert f"vol/sets/faces is on its volume already: {ADDRESS}, version {hub.commit}" in capfd.readouterr().out


def test_each_kind_of_source_may_be_fetched_to_a_volume(next_machine: Next, serve: Serve, volume: Path) -> None:
    """A single file, and an unpacked archive. A signature in an address isn't left on the volume."""
    site = serve(Site({"/x.csv": b"1,2", "/y.zip": zipped({"a/b": b"c"})}))
    machine = next_machine()
    assert machine.fetch(f"{site.url}/x.csv?sig=hunter2", "x.csv").read_bytes() == b"1,2"
    assert files_below(machine.fetch(f"{site.url}/y.zip#unpack", "y")) == {"a/b": b"c"}
    site.files.clear()
    again = next_machine()
    assert again.fetch(f"{site.url}/x.csv?sig=hunter2", "x.csv").read_bytes() == b"1,2"
    assert again.fetch(f"{site.url}/y.zip#unpack", "y").is_dir()
    assert not [path for path in volume.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "lost with its machine"])
def test_a_download_that_was_cut_off_is_resumed_by_the_next_machine(
    next_machine: Next, serve: Serve, volume: Path, lost: bool
) -> None:
    """If the machine was lost, only what was synced counts: the disk may have zeros in the place of the rest."""
    content = os.urandom(2_000_000)
    site = serve(Site({"/x": content}, cuts=[1_500_000]))
    first = next_machine()
    first.retry_seconds = 0.0
    address = f"{site.url}/x#sha256={hashlib.sha256(content).hexdigest()}"
    first.refuse(address)
    assert not (volume / "data/set").exists()
    if lost:
        (note,) = volume.glob(".fetching/*/*/parts/*.json")
        note.write_text(json.dumps({**json.loads(note.read_text()), "boot": "another", "synced": 1_000_000}))
        (part,) = (path for path in note.parent.iterdir() if path != note)
        part.write_bytes(part.read_bytes()[:1_000_000] + bytes(500_000))
    assert next_machine().fetch(address).read_bytes() == content
    assert site.sent("range")[-1] == f"bytes={1_000_000 if lost else 1_500_000}-"


@pytest.mark.parametrize(
    "damage", [{"synced": "all"}, {"synced": -5, "boot": "another"}, {"total": "all"}, {"total": [1]}, {"synced": None}]
)
def test_a_record_of_a_download_that_makes_no_sense_is_not_believed(
    next_machine: Next, serve: Serve, volume: Path, damage: dict[str, object]
) -> None:
    """Whoever had the volume before may have written anything there; the download begins anew."""
    content = os.urandom(200_000)
    site = serve(Site({"/x": content}, cuts=[150_000]))
    first = next_machine()
    first.retry_seconds = 0.0
    address = f"{site.url}/x#sha256={hashlib.sha256(content).hexdigest()}"
    first.refuse(address)
    (note,) = volume.glob(".fetching/*/*/parts/*.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), **damage}))
    assert next_machine().fetch(address).read_bytes() == content


def test_other_data_at_the_target_is_replaced_if_kedge_has_fetched_it_and_refused_if_not(
    next_machine: Next, serve: Serve, volume: Path
) -> None:
    """A volume comes back with another job. It never uses the data of another address."""
    site = serve(Site({"/a": b"a", "/b": b"b"}))
    for name in ("a", "b", "a", "b"):
        assert next_machine().fetch(f"{site.url}/{name}", "file").read_bytes() == name.encode()
    assert len(site.asked) == 4
    (volume / "mine").mkdir()
    assert next_machine().fetch(f"{site.url}/a", "mine").read_bytes() == b"a"
    (volume / "results").write_text("a year's work")
    refused = next_machine().refuse(f"{site.url}/a", "results")
    assert "disk/results on the volume holds other data" in str(refused)
    assert (volume / "results").read_text() == "a year's work"
    (volume / "results").unlink()
    assert next_machine().fetch(f"{site.url}/a", "results").read_bytes() == b"a"


@pytest.mark.parametrize("link", ["sets", ".fetching", ".fetching/NAME"])
def test_nothing_is_written_or_removed_through_a_link_on_the_volume(
    next_machine: Next, serve: Serve, volume: Path, tmp_path: Path, link: str
) -> None:
    """Whoever had the volume before may have left it; the error names it."""
    site = serve(Site({"/x": b"x"}))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("a year's work")
    planted = volume / link.replace("NAME", name_of("sets/x"))
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(tmp_path / "precious")
    refused = next_machine().refuse(f"{site.url}/x", "sets/x")
    assert str(refused).startswith("data can't be written")
    assert f"a link, or a file, is in the way at '{tmp_path}" in str(refused)
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["file"]


def test_a_planted_download_can_t_be_a_file_of_the_machine(next_machine: Next, serve: Serve, volume: Path) -> None:
    """The note of a complete download names a path in the download."""
    site = serve(Site({"/x": b"x"}))
    machine = next_machine()
    machine.layout.run_file.write_text("{}")
    draft = volume / ".fetching" / name_of("set") / name_of(f"{site.url}/x")
    draft.mkdir(parents=True)
    (draft / "fetched.json").write_text(json.dumps({"path": os.path.relpath(machine.layout.run_file, draft)}))
    assert machine.fetch(f"{site.url}/x", "set").read_bytes() == b"x"
    assert machine.layout.run_file.read_text() == "{}"


@pytest.mark.parametrize("by_itself", [True, False], ids=["at its start", "when the laptop asks for it"])
def test_the_laptop_s_data_takes_the_place_of_fetched_data(
    next_machine: Next, serve: Serve, volume: Path, tmp_path: Path, by_itself: bool
) -> None:
    """Neither is mixed with the other, nor is it taken for the other later."""
    site = serve(Site({"/y.zip": zipped({"a": b"fetched", "c": b"c"})}))
    lay(FolderStore(tmp_path / "store/data/pictures-1a2b"), {"a": b"laptop's"})
    pin = pin_of((tmp_path / "store/data/pictures-1a2b/index.json.gz").read_bytes())
    machine = next_machine()
    machine.store_url = (tmp_path / "store").as_uri()
    target = machine.fetch(f"{site.url}/y.zip#unpack", "set")
    if by_itself:
        machine.fetch(MIRRORED, "set", index=pin)
    else:
        now = time.time()
        times = {"created": now, "deadline": now + 60, "usd_per_hour": "0"}
        known = {"machine": "m", "run": "r", "provider": "local", "root": "/", "store_url": machine.store_url, **times}
        machine.layout.machine_file.write_text(json.dumps(known))
        pull_data(machine.layout, Namespace(index=pin, name="pictures-1a2b", target="disk/set"))
    assert seen(target) == {"a": b"laptop's"}
    assert "holds other data" in str(next_machine().refuse(f"{site.url}/y.zip#unpack", "set"))
    shutil.rmtree(volume / "set")
    assert files_below(next_machine().fetch(f"{site.url}/y.zip#unpack", "set")) == {"a": b"fetched", "c": b"c"}


def test_a_kill_at_any_step_leaves_a_volume_that_the_next_machine_completes(serve: Serve, volume: Path) -> None:
    """Whichever data the next machine wants, it gets that, whole; nothing is left beside it."""
    trees = {name: {f"{name}/{number}": name for number in range(2)} for name in ("old", "new")}
    archives = {name: zipped({path: text.encode() for path, text in tree.items()}) for name, tree in trees.items()}
    site = serve(Site({f"/{name}": archive for name, archive in archives.items()}))
    addresses = [f"{site.url}/{name}#unpack" for name in trees]
    argv = [sys.executable, "-m", "tests.agent.sources.crashing_fetch", str(volume), *addresses]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 40
    assert [row["killed"] for row in rows].count(False) == 2
    for row in rows:
        assert row["old"] == {"content": trees["old"], "left": []}, row
        assert row["new"] == {"content": trees["new"], "left": []}, row


FULL = """
import sys
from pathlib import Path
from tests.agent.sources.machine import Machine

machine = Machine(Path(sys.argv[1]))
machine.attach(Path(sys.argv[2]))
print(machine.refuse(sys.argv[3], "sets/data"))
"""


@needs_root
@pytest.mark.parametrize("lacks_inodes", [False, True], ids=["before the download", "while it is unpacked"])
def test_a_full_volume_is_named(tmp_path: Path, serve: Serve, lacks_inodes: bool) -> None:
    """Not `disk_size`, which is the root disk's, which has room."""
    site = serve(Site({"/large": bytes(20 << 20), "/many": zipped({f"{number}": b"" for number in range(100)})}))
    (tmp_path / "volume").mkdir()
    mount = f"mount -t tmpfs -o size=80m,nr_inodes=50 none {tmp_path}/volume"
    address = f"{site.url}/many#unpack" if lacks_inodes else f"{site.url}/large"
    argv = [sys.executable, "-c", FULL, str(tmp_path / "root"), str(tmp_path / "volume"), address]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "disk/sets/data doesn't fit on the volume at disk/" in done.stdout
    assert ("No space left on device" if lacks_inodes else "GB are still missing") in done.stdout
    assert "use a larger volume, or remove files from it; unfinished downloads are in disk/.fetching" in done.stdout


def name_of(text: str) -> str:
    """Return the folder's name of a download's target, and of its address."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
