"""Data and results are copied by the real rsync over a real SSH connection."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.adapters.sync.rsync import RsyncMover
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.job import DataMount
from orchestrator.core.protocol.results import ResultFile
from tests.adapters.code.conftest import Box
from tests.adapters.code.test_sending import AWKWARD
from tests.adapters.code.trees import picture
from tests.adapters.remote.sshd import CuttingProxy, Sshd, short_folder, wait_until


def ignore(_done: int, _total: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def mover(connector: SshConnector) -> RsyncMover:
    return RsyncMover(connector)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "a data:set"
    for name in AWKWARD:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name * 100)
    (folder / "tool").touch(mode=0o755)
    (folder / "inside").symlink_to("tool")
    return folder


def test_a_folder_arrives_with_odd_names_links_and_modes(mover: RsyncMover, box: Box, data: Path) -> None:
    """Paths on both sides have spaces, quotes, newlines and bytes that are not UTF-8."""
    mover.send(DataMount(source=str(data), target="my data/train set"), box.machine, ignore)
    assert picture(box.root / "data" / "my data" / "train set") == picture(data)


def test_a_file_arrives_under_the_target_s_name(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """A mount can be a single file."""
    (tmp_path / "x.csv").write_text("1,2")
    mover.send(DataMount(source=str(tmp_path / "x.csv"), target="in/table.csv"), box.machine, ignore)
    assert (box.root / "data" / "in" / "table.csv").read_text() == "1,2"


@pytest.mark.parametrize("is_file", [False, True], ids=["a folder", "a file"])
def test_data_that_an_earlier_machine_fetched_to_a_volume_is_removed(
    mover: RsyncMover, box: Box, data: Path, is_file: bool
) -> None:
    """It isn't mixed with the laptop's, which is never taken for it. Data without such a record stays."""
    target = box.root / "data" / "disk" / "the set"
    target.mkdir(parents=True)
    (target / "weights").write_text("of the Hub")
    mount = DataMount(source=str(data / "tool" if is_file else data), target="disk/the set")
    if not is_file:
        mover.send(mount, box.machine, ignore)
        assert (target / "weights").exists()
    record = target.with_name(".the set.fetched.json")
    record.write_text("{}")
    mover.send(mount, box.machine, ignore)
    assert not record.exists()
    assert target.is_file() if is_file else picture(target) == picture(data)


@pytest.mark.parametrize("link", ["results", "results/run-1"])
def test_results_are_not_fetched_through_a_link(mover: RsyncMover, box: Box, tmp_path: Path, link: str) -> None:
    """A link replaced the run's results folder, or its parent folder, while the run was at work."""
    (box.root / "output").mkdir()
    (box.root / "output" / "authorized_keys").write_text("a stranger's")
    (tmp_path / "user").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "user")
    with pytest.raises(BadRequestError, match="is a link"):
        mover.fetch(box.machine, "output", str(tmp_path / "results" / "run-1"), ignore)
    assert list((tmp_path / "user").iterdir()) == []


def test_the_target_of_an_outside_link_is_sent_if_the_plan_listed_it(
    mover: RsyncMover, box: Box, tmp_path: Path
) -> None:
    """A data set of links to a big disk arrives as files. A link to another place that appeared later is refused."""
    (tmp_path / "disk").write_text("big")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").symlink_to(tmp_path / "disk")
    mount = DataMount(source=str(tmp_path / "set"), target="set", follows=(str(tmp_path / "disk"),))
    mover.send(mount, box.machine, ignore)
    assert picture(box.root / "data" / "set") == {"x": ("file", b"big", False)}
    (tmp_path / "set" / "y").symlink_to(tmp_path / "sshd")
    with pytest.raises(BadRequestError, match="leaves it: 'y'"):
        mover.send(mount, box.machine, ignore)


def test_an_absolute_link_inside_of_the_data_arrives_as_its_target(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """On the machine the link would be broken."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").write_text("here")
    (tmp_path / "set" / "y").symlink_to(tmp_path / "set" / "x")
    mover.send(DataMount(source=str(tmp_path / "set"), target="set"), box.machine, ignore)
    assert (box.root / "data" / "set" / "y").read_text() == "here"


def test_files_are_deleted_only_on_request(mover: RsyncMover, box: Box, data: Path) -> None:
    """Files that the run wrote beside its data stay, unless the user wants an exact mirror."""
    mount = DataMount(source=str(data), target="d")
    mover.send(mount, box.machine, ignore)
    (box.root / "data" / "d" / "cache.bin").touch()
    mover.send(mount, box.machine, ignore)
    assert (box.root / "data" / "d" / "cache.bin").exists()
    mover.send(mount, box.machine, ignore, delete=True)
    assert picture(box.root / "data" / "d") == picture(data)


@pytest.mark.parametrize("target", ["../x", "a/../../x", "/etc/x", "", ".", ".."])
def test_a_target_outside_of_the_data_folder_is_refused(mover: RsyncMover, box: Box, data: Path, target: str) -> None:
    """No connection is made."""
    with pytest.raises(BadRequestError, match="can't be a target"):
        mover.send(DataMount(source=str(data), target=target), box.machine, ignore)


def test_a_missing_source_is_a_bad_request(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """The error names the source."""
    with pytest.raises(BadRequestError, match="nowhere"):
        mover.send(DataMount(source=str(tmp_path / "nowhere"), target="x"), box.machine, ignore)


def test_results_are_fetched_and_not_sent_again(mover: RsyncMover, box: Box, data: Path, tmp_path: Path) -> None:
    """From a folder below the machine's root, or from an absolute one. The second time nothing is copied."""
    data.rename(box.root / "my results")
    home = tmp_path / "kedge-results" / "it's here: now"
    listed = [ResultFile(path="inside", bytes=0, sha256="", link="tool")]
    mover.fetch(box.machine, "my results", str(home), ignore, files=listed)
    assert picture(home) == picture(box.root / "my results")
    moved = [0]
    mover.fetch(box.machine, str(box.root / "my results"), str(home), lambda done, _: moved.append(done))
    assert max(moved) == 0


def test_only_some_of_the_results_are_fetched(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """Whatever else is there; one that is gone meanwhile is missed, and one that git would obey is renamed."""
    results, home = box.root / "results", tmp_path / "run-1" / "home"
    for name in ("a\n b", "deep/er", "deep/other", "repo/HEAD"):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(name)
    listed = [
        ResultFile(path=name, bytes=len(name), sha256=hashlib.sha256(name.encode()).hexdigest())
        for name in ("a\n b", "deep/er", "gone", "repo/HEAD")
    ]
    arrival = mover.fetch(box.machine, "results", str(home), ignore, files=listed, only=True)
    assert arrival.different == ("gone",)
    assert picture(home).keys() == {"a\n b", "deep/er", "repo/HEAD.kedge-renamed"}


def test_progress_grows_to_the_total(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """At the end the copied bytes equal the total."""
    (tmp_path / "big").write_bytes(random.Random(1).randbytes(5_000_000))
    seen: list[tuple[int, int]] = []
    mount = DataMount(source=str(tmp_path / "big"), target="big")
    mover.send(mount, box.machine, lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (5_000_000, 5_000_000)


@pytest.mark.parametrize("direction", ["send", "fetch"])
def test_an_interrupted_copy_continues_where_it_stopped(
    box: Box, sshd: Sshd, mover: RsyncMover, tmp_path: Path, direction: str
) -> None:
    """The interruption is an UnreachableError. A partial file is not taken for a whole one; only the rest is sent."""
    content = random.Random(2).randbytes(6_000_000)
    there = box.root / "data" / "set"
    source, copy = (tmp_path / "set", there) if direction == "send" else (there, tmp_path / "home")
    source.mkdir(parents=True)
    (source / "big").write_bytes(content)

    def act(machine_mover: RsyncMover, box: Box) -> None:
        if direction == "send":
            machine_mover.send(DataMount(source=str(source), target="set"), box.machine, ignore)
        else:
            machine_mover.fetch(box.machine, "data/set", str(copy), ignore)

    wire = CuttingProxy(sshd.port, dies_after=4_000_000)
    with short_folder() as runtime:
        connector = SshConnector(SshFiles(pins=tmp_path / "pins2", runtime=runtime / "run"), SystemClock())
        cut = replace(box, machine=replace(box.machine, address=wire.to(sshd.address)))
        with pytest.raises(UnreachableError, match="broke"):
            act(RsyncMover(connector), cut)
        connector.close()
    wire.close()
    assert not (copy / "big").exists()
    wait_until(lambda: [path.stat().st_size > 500_000 for path in copy.rglob("big")] == [True])
    act(mover, box)
    assert picture(copy) == {"big": ("file", content, False)}


def test_a_missing_rsync_on_the_laptop_is_reported(connector: SshConnector, box: Box, data: Path) -> None:
    """The error has the command that installs it."""
    mover = RsyncMover(connector, program="no-such-rsync")
    with pytest.raises(KedgeError, match="isn't installed here") as caught:
        mover.send(DataMount(source=str(data), target="d"), box.machine, ignore)
    assert "install rsync" in caught.value.fix


def test_a_missing_rsync_on_the_machine_is_reported(connector: SshConnector, box: Box, data: Path) -> None:
    """It is not taken for a broken connection."""
    mover = RsyncMover(connector, remote_program="no-such-rsync")
    with pytest.raises(KedgeError, match="isn't installed on the machine") as caught:
        mover.send(DataMount(source=str(data), target="d"), box.machine, ignore)
    assert not isinstance(caught.value, UnreachableError)


def test_a_missing_folder_on_the_machine_is_not_taken_for_a_broken_connection(
    mover: RsyncMover, box: Box, tmp_path: Path
) -> None:
    """The error has rsync's message."""
    with pytest.raises(KedgeError, match="rsync failed") as caught:
        mover.fetch(box.machine, "no/such", str(tmp_path / "home"), ignore)
    assert "No such file" in caught.value.why


def test_a_machine_with_another_host_key_gets_no_data(
    mover: RsyncMover, box: Box, sshd: Sshd, data: Path, tmp_path: Path
) -> None:
    """Rsync accepts only the pinned key, like every other connection."""
    _, other = ensure_key(tmp_path / "other")
    machine = replace(box.machine, address=replace(sshd.address, host_key=other))
    with pytest.raises(HostKeyError):
        mover.send(DataMount(source=str(data), target="d"), machine, ignore)
    assert not (box.root / "data" / "d").exists()


SLOW = """\
#!/usr/bin/env python3
import os, subprocess, sys, threading, time
process = subprocess.Popen(["rsync", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def pass_on():
    while data := os.read(0, 65536):
        process.stdin.write(data)
threading.Thread(target=pass_on, daemon=True).start()
while byte := process.stdout.read(1):
    os.write(1, byte)
    time.sleep(0.5)
"""


def test_a_copy_from_a_very_slow_machine_is_given_up(connector: SshConnector, box: Box, tmp_path: Path) -> None:
    """It sends often enough for rsync's own timeout. The copy ends at its deadline."""
    slow = tmp_path / "slow-rsync"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    (box.root / "results").mkdir(exist_ok=True)
    (box.root / "results" / "run.log").write_text("one\n")
    mover = RsyncMover(connector, remote_program=str(slow))
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="too long"):
        mover.fetch(box.machine, "results", str(tmp_path / "home"), ignore, within=timedelta(seconds=3))
    assert time.monotonic() - began < 20


def test_a_copy_larger_than_the_disk_is_not_started(mover: RsyncMover, box: Box, tmp_path: Path) -> None:
    """The machine's list of results gives the size."""
    (box.root / "results").mkdir(exist_ok=True)
    (box.root / "results" / "run.log").write_text("one\n")
    listed = [ResultFile(path="run.log", bytes=1 << 60, sha256="0" * 64)]
    with pytest.raises(KedgeError, match="no room"):
        mover.fetch(box.machine, "results", str(tmp_path / "home"), ignore, files=listed)
    assert list((tmp_path / "home").iterdir()) == []


def test_a_machine_that_sends_more_than_it_listed_does_not_fill_the_disk(
    mover: RsyncMover, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy ends while the laptop still has room for its own records."""
    (box.root / "results").mkdir(exist_ok=True)
    (box.root / "results" / "run.log").write_bytes(bytes(5_000_000))
    before = shutil.disk_usage(tmp_path)
    left = iter([before])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: next(left, before._replace(free=1 << 20)))
    with pytest.raises(KedgeError, match="no room"):
        mover.fetch(box.machine, "results", str(tmp_path / "home"), ignore)
