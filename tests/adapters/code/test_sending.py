"""Code reaches a machine completely or not at all, over a real SSH connection to the real agent."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.sync.code.entries import MANIFEST_NAME
from orchestrator.adapters.sync.code.tree import TreeChangedError
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from tests.adapters.code.conftest import Box, git
from tests.adapters.code.trees import picture
from tests.adapters.remote.sshd import CuttingProxy, Sshd

AWKWARD = [
    b"a b.py",
    b'it\'s "quoted".py',
    b"line\nbreak.py",
    "é☃ üñï.py".encode(),
    b"latin-\xe9\xff.py",
    b"-rf",
    b"*?[x]$HOME`id`;.py",
    b"back\\slash",
    b"deep/" + b"x" * 200 + b"/" + b"y" * 200 + b".py",
]


class Spy:
    """A remote that forwards everything, counts the streamed bytes, and may call a function in the middle."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.sent: list[Sequence[str]] = []
        self.bytes = 0
        self.on_first_chunk: Callable[[], object] = lambda: None

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        return self._remote.run(argv, stdin=stdin, timeout=timeout, most=most)

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        self.sent.append(argv)
        return self._remote.send(argv, self._watched(chunks), timeout=timeout)

    def _watched(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            if number == 0:
                self.on_first_chunk()
            self.bytes += len(chunk)
            yield chunk

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        return self._remote.lines(argv)

    def close(self) -> None:
        self._remote.close()


def put_a_large_file_first(work: Path) -> None:
    """Write a large file that sorts first, so that later files are not packed before the stream is read."""
    (work / "a large file").write_bytes(random.Random(5).randbytes(24_000_000))


@pytest.mark.parametrize("zstd", [True, False])
def test_odd_names_links_and_exec_bits_survive(box: Box, work: Path, zstd: bool) -> None:
    """The machine has the laptop's files byte for byte, with either codec."""
    for name in AWKWARD:
        path = work / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name * 3)
    (work / "tool.sh").write_text("#!/bin/sh\n")
    (work / "tool.sh").chmod(0o755)
    (work / "empty").touch()
    (work / os.fsdecode(b"link \xff")).symlink_to(os.fsdecode(b"latin-\xe9\xff.py"))
    (work / "to folder").symlink_to("deep")
    (work / "dangling").symlink_to("not/there")
    box = replace(box, machine=replace(box.machine, zstd=zstd))
    code_hash, _ = box.sync(work)
    assert picture(box.code) == picture(work)
    assert box.hash_in_place() == code_hash
    assert box.source(work).summary().hash == code_hash


def test_unchanged_code_is_not_sent_again(box: Box, work: Path) -> None:
    """Neither by the same laptop nor by another one that uses the machine for the first time."""
    first, _ = box.sync(work)
    spy = Spy(box.remote)
    other = replace(box, state=box.state.with_name("other laptop"))
    for laptop in (box, other, other):
        assert replace(laptop, remote=spy).sync(work)[0] == first
    assert spy.bytes < 3 * 300


def test_only_changes_are_sent_in_one_round_trip(box: Box, work: Path) -> None:
    """A small edit in a large tree sends one file. New modes, links and deletions send no file contents."""
    (work / "large.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    (work / "gone.py").touch()
    (work / "folder").mkdir()
    (work / "folder" / "x.py").touch()
    box.sync(work)
    (work / "train.py").write_text("print('changed')\n")
    (work / "gone.py").unlink()
    (work / "folder" / "x.py").unlink()
    (work / "link").symlink_to("train.py")
    spy = Spy(box.remote)
    code_hash, sent = replace(box, remote=spy).sync(work)
    assert sent == len("print('changed')\n")
    assert len(spy.sent) == 1
    assert "--base" in spy.sent[0]
    assert picture(box.code) == picture(work)
    assert box.hash_in_place() == code_hash


def test_a_file_becomes_a_folder_and_a_folder_a_link(box: Box, work: Path) -> None:
    """The kind of a path can change, tracked or not."""
    (work / "a").write_text("file")
    (work / "b").mkdir()
    (work / "b" / "x").write_text("in b")
    (work / "c").mkdir()
    git(work, "add", "-A")
    box.sync(work)
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a" / "y").write_text("in a")
    (work / "b").rename(work / "b2")
    (work / "b").symlink_to("b2")
    box.sync(work)
    assert picture(box.code) == picture(work)


def test_a_machine_that_lacks_the_base_gets_everything(box: Box, work: Path) -> None:
    """The laptop's cache is only a hint: another laptop's upload in between does no harm."""
    box.sync(work)
    stranger = replace(box, state=box.state.with_name("other laptop"))
    (work / "extra.py").write_text("x")
    stranger.sync(work)
    (work / "train.py").write_text("second")
    spy = Spy(box.remote)
    code_hash, _ = replace(box, remote=spy).sync(work)
    assert [("--base" in argv) for argv in spy.sent] == [True, False]
    assert box.hash_in_place() == code_hash
    assert (box.code / "train.py").read_text() == "second"


def test_code_that_another_laptop_replaced_is_sent_again(box: Box, work: Path) -> None:
    """Code that is unchanged on the laptop may have changed on the machine."""
    first, _ = box.sync(work)
    original = (work / "train.py").read_text()
    (work / "train.py").write_text("other")
    replace(box, state=box.state.with_name("other laptop")).sync(work)
    (work / "train.py").write_text(original)
    assert box.sync(work)[0] == first
    assert (box.code / "train.py").read_text() == original


def test_a_code_folder_that_was_changed_on_the_machine_is_replaced(box: Box, work: Path) -> None:
    """A difference is never applied to files other than those that were sent."""
    (work / "other.py").write_text("x = 1")
    box.sync(work)
    (box.code / "other.py").write_text("edited on the machine")
    (work / "train.py").write_text("new")
    box.sync(work)
    assert (box.code / "other.py").read_text() == "x = 1"


@pytest.mark.parametrize("dies_after", [20_000, 300_000, 900_000])
def test_a_connection_that_is_cut_anywhere_leaves_the_old_tree(
    box: Box, work: Path, sshd: Sshd, connector: SshConnector, dies_after: int
) -> None:
    """The old tree stays complete and in place, and the next attempt replaces it."""
    box.sync(work)
    before = picture(box.code)
    (work / "noise.bin").write_bytes(random.Random(3).randbytes(1_500_000))
    wire = CuttingProxy(sshd.port, dies_after=dies_after)
    remote = connector.connect(wire.to(sshd.address))
    with pytest.raises(UnreachableError):
        replace(box, remote=remote).sync(work)
    wire.close()
    assert picture(box.code) == before
    code_hash, _ = box.sync(work)
    assert box.hash_in_place() == code_hash
    assert (box.code / "noise.bin").read_bytes() == (work / "noise.bin").read_bytes()


def test_a_file_that_changes_while_it_is_sent_is_read_again(box: Box, work: Path) -> None:
    """The new content arrives under the new hash, never a mix."""
    put_a_large_file_first(work)
    spy = Spy(box.remote)
    edits = iter(["second, longer than before\n"])

    def edit() -> None:
        for text in edits:
            (work / "train.py").write_text(text)
            return

    spy.on_first_chunk = edit
    code_hash, _ = replace(box, remote=spy).sync(work)
    assert len(spy.sent) == 2
    assert (box.code / "train.py").read_text() == "second, longer than before\n"
    assert box.hash_in_place() == code_hash


def test_a_file_that_keeps_changing_is_named(box: Box, work: Path) -> None:
    """Each time it has the same size and other content. The machine keeps its old code; the error names it."""
    box.sync(work)
    put_a_large_file_first(work)
    (work / "log.txt").write_text("0000")
    spy = Spy(box.remote)
    spy.on_first_chunk = lambda: (work / "log.txt").write_text(f"{len(spy.sent):04}")
    with pytest.raises(TreeChangedError, match=r"log\.txt"):
        replace(box, remote=spy).sync(work)
    assert not (box.code / "log.txt").exists()


def test_a_package_is_added_if_the_code_has_none_with_its_name(box: Box, work: Path, tmp_path: Path) -> None:
    """The bundled trainer is sent with the code, without its caches, unless the user has one."""
    package = tmp_path / "site" / "trainer"
    (package / "recipes").mkdir(parents=True)
    (package / "__init__.py").write_text("bundled")
    (package / "recipes" / "digits.py").write_text("d")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("")
    box.sync(work, trainer=package)
    assert {path for path in picture(box.code) if path.startswith("trainer")} == {
        "trainer/__init__.py",
        "trainer/recipes/digits.py",
    }
    (work / "trainer").mkdir()
    (work / "trainer" / "mine.py").write_text("mine")
    box.sync(work, trainer=package)
    assert {path for path in picture(box.code) if path.startswith("trainer")} == {"trainer/mine.py"}


def test_a_job_without_a_workdir_sends_only_the_package(box: Box, tmp_path: Path) -> None:
    """A recipe needs no folder of the user."""
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("bundled")
    box.sync(None, trainer=package)
    assert set(picture(box.code)) == {"trainer/__init__.py"}


def test_progress_counts_the_sent_bytes(box: Box, work: Path) -> None:
    """It grows up to the total size of the files to send."""
    for number in range(5):
        (work / f"f{number}").write_bytes(bytes(1000))
    seen: list[tuple[int, int]] = []
    box.source(work).send(box.remote, box.machine, lambda done, total: seen.append((done, total)))
    total = 5000 + len("print('hello')\n")
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_a_machine_that_refuses_the_code_says_why(box: Box, work: Path) -> None:
    """The error has the agent's message."""
    (box.root / "releases").mkdir(exist_ok=True)
    broken = replace(box, machine=replace(box.machine, root=str(box.root / "nowhere")))
    with pytest.raises(KedgeError, match="could not take the code") as caught:
        broken.sync(work)
    assert caught.value.why


def test_two_laptops_at_once_leave_one_complete_tree(box: Box, work: Path, tmp_path: Path) -> None:
    """The last one wins; the trees are never mixed."""
    other = tmp_path / "other"
    other.mkdir()
    for number in range(50):
        (work / f"a{number}").write_text("a" * 1000)
        (other / f"b{number}").write_text("b" * 1000)
    racers = [
        threading.Thread(target=box.sync, args=(work,)),
        threading.Thread(target=replace(box, state=tmp_path / "state2").sync, args=(other,)),
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    there = picture(box.code)
    assert there in (picture(work), picture(other))
    assert MANIFEST_NAME not in there
