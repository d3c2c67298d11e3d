"""Code arrives whole or not at all, whatever its names are, and whatever a hostile stream contains."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.box import Box, wait_for
from tests.agent.trees import FIRST, Content, litter, pack, receive, tree_of, unchanged


@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        ("none", lambda raw: raw),
        ("gzip", gzip.compress),
        ("zstd", lambda raw: subprocess.run(["zstd", "-c"], input=raw, capture_output=True, check=True).stdout),
    ],
)
def test_a_tree_arrives_as_it_was(box: Box, codec: str, encode: Callable[[bytes], bytes]) -> None:
    """Names of every kind, links and exec bits survive; the hash can be read back."""
    done = box.send_code(encode(pack("hash0001", FIRST)), codec=codec)
    assert done.returncode == 0, done.stderr.decode()
    assert tree_of(box) == FIRST
    assert os.access(box.root / "code/run.sh", os.X_OK)
    assert not os.access(box.root / "code/a.py", os.X_OK)
    assert box.call("code-hash").stdout == b"hash0001\n"
    assert box.ask("report")["code"] == "hash0001"


def test_a_difference_builds_on_the_tree_that_is_there(box: Box) -> None:
    """Unchanged files come from the base, changed ones are replaced, deleted ones are gone."""
    receive(box, "hash0001", FIRST)
    changed: dict[str, Content] = {**FIRST, "a.py": b"print(2)\n", "new/b.py": b"", "link": "new/b.py"}
    del changed["odd/with space"]
    sent = {path: changed[path] for path in ("a.py", "new/b.py", "link")}
    done = box.send_code(pack("hash0002", changed, sent), base="hash0001")
    assert done.returncode == 0, done.stderr.decode()
    assert tree_of(box) == changed


def test_a_missing_base_is_reported(box: Box) -> None:
    """Exit code 3 asks for the whole tree; so does a base that the run has changed since it arrived."""
    assert box.send_code(b"", base="hash0001").returncode == 3
    receive(box, "hash0001", FIRST)
    (box.root / "code/a.py").write_text("print(9)\n")
    refused = box.send_code(pack("hash0002", FIRST, {}), base="hash0001")
    assert (refused.returncode, b"no base" in refused.stderr) == (3, True)


def test_a_claim_that_nothing_has_changed_is_checked(box: Box) -> None:
    """A manifest without entries asks whether that tree is in place; the run's own changes to it don't matter."""
    receive(box, "hash0001", FIRST)
    (box.root / "code/a.py").write_text("print(9)\n")
    assert box.send_code(unchanged("hash0001"), base="hash0001").returncode == 0
    assert box.send_code(unchanged("hash0001")).returncode == 0
    assert box.send_code(unchanged("hash0009")).returncode == 3
    assert (box.root / "code/a.py").read_text() == "print(9)\n"


def test_a_command_never_runs_on_code_that_the_one_before_has_changed(box: Box) -> None:
    """A difference shares files with its base: an in-place write to one is never taken for code of the other."""
    receive(box, "hash0001", FIRST)
    changed: dict[str, Content] = {**FIRST, "new.py": b""}
    assert box.send_code(pack("hash0002", changed, {"new.py": b""}), base="hash0001").returncode == 0
    old = box.root / "releases" / "hash0001" / "a.py"
    old.write_text("print('written in place')\n")
    box.start("cat a.py", restarts=0)
    failed = box.await_state("failed")
    assert "an earlier command changed a.py" in failed["reason"]
    assert box.call("code-hash").stdout == b"\n"
    receive(box, "hash0002", changed)
    box.start("cat a.py", restarts=0)
    box.await_state("succeeded")


def test_a_command_that_writes_to_its_code_leaves_the_release_before_alone(box: Box) -> None:
    """The sharing ends before the first command runs."""
    receive(box, "hash0001", FIRST)
    assert box.send_code(pack("hash0002", {**FIRST, "b": b""}, {"b": b""}), base="hash0001").returncode == 0
    box.start("echo more >> a.py", restarts=0)
    box.await_state("succeeded")
    assert (box.root / "code" / "a.py").read_text().endswith("more\n")
    assert (box.root / "releases" / "hash0001" / "a.py").read_bytes() == FIRST["a.py"]


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_cut_stream_leaves_the_old_tree_and_no_litter(box: Box, codec: str) -> None:
    """Wherever it is cut: before the first byte, in a header, in a file, before or in the manifest."""
    receive(box, "hash0001", FIRST)
    second = {**FIRST, "big.bin": os.urandom(200_000), "a.py": b"print(2)\n"}
    raw = pack("hash0002", second)
    if codec == "gzip":
        raw = gzip.compress(raw)
    elif codec == "zstd":
        raw = subprocess.run(["zstd", "-c"], input=raw, capture_output=True, check=True).stdout
    # In a plain tar, only padding follows the manifest: cut there, everything has arrived.
    whole = len(raw.rstrip(b"\0"))
    for length in (0, 100, 700, 5_000, whole // 2, whole - 1_500, whole - 9):
        done = box.send_code(raw[:length], codec=codec)
        assert done.returncode == 1, (length, done.stderr)
        assert b"Traceback" not in done.stderr
        assert tree_of(box) == FIRST
        assert litter(box) == []
    assert box.call("code-hash").stdout == b"hash0001\n"


def test_a_receiver_that_was_killed_leaves_nothing_for_the_next(box: Box) -> None:
    """Killed in the middle of a file, the old tree is in place; the next receiver cleans up and succeeds."""
    receive(box, "hash0001", FIRST)
    raw = pack("hash0002", {**FIRST, "big.bin": os.urandom(1_000_000)})
    receiver = subprocess.Popen([box.launcher, "receive-code"], stdin=subprocess.PIPE, env=box.env)
    assert receiver.stdin is not None
    receiver.stdin.write(raw[:500_000])
    receiver.stdin.flush()
    # A folder that is still empty would be left alone.
    wait_for(lambda: list((box.root / "releases").glob(".incoming*/big.bin")))
    receiver.kill()
    receiver.wait()
    receiver.stdin.close()
    assert tree_of(box) == FIRST
    receive(box, "hash0003", {"only": b"this"})
    assert tree_of(box) == {"only": b"this"}
    assert litter(box) == []


def test_two_receivers_take_turns(box: Box) -> None:
    """The second waits for the first; both succeed, and the tree is one of the two, whole."""
    trees = {f"hash000{number}": {"a.py": f"print({number})\n".encode() * 1000} for number in (1, 2, 3)}
    receivers = {}
    for content_hash in trees:
        receivers[content_hash] = subprocess.Popen([box.launcher, "receive-code"], stdin=subprocess.PIPE, env=box.env)
    for content_hash, receiver in receivers.items():
        receiver.communicate(pack(content_hash, trees[content_hash]), timeout=60)
        assert receiver.returncode == 0
    assert tree_of(box) == trees[box.call("code-hash").stdout.decode().strip()]


def device() -> tarfile.TarInfo:
    info = tarfile.TarInfo("null")
    info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3
    return info


def hard_link() -> tarfile.TarInfo:
    info = tarfile.TarInfo("hard")
    info.type, info.linkname = tarfile.LNKTYPE, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("tree", "extra"),
    [
        ({"/tmp/kedge-absolute": b"x"}, ()),
        ({"../up": b"x"}, ()),
        ({"a/../../up": b"x"}, ()),
        ({"a//b": b"x"}, ()),
        ({"link": "/etc"}, ()),
        ({"link": "../.."}, ()),
        ({"a/link": "../../x"}, ()),
        ({"here": ".", "by/way": "../here", "out": "by/way/../../x"}, ()),
        ({"round": "about", "about": "round"}, ()),
        ({"link": "..", "link/through": b"x"}, ()),
        ({"dir/x": b"x", "dir": "."}, ()),
        ({"file": b"x", "file/below": b"x"}, ()),
        ({"a/b/c": b"x", "a": b"x"}, ()),
        ({"a/b/c": b"x", "a": "."}, ()),
        ({}, (device(),)),
        ({}, (hard_link(),)),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else str(len(value)),
)
def test_hostile_members_are_refused(
    box: Box, tmp_path: Path, tree: dict[str, Content], extra: tuple[tarfile.TarInfo, ...]
) -> None:
    """Exit code 2, the old tree stays, and nothing was written elsewhere."""
    receive(box, "hash0001", FIRST)
    before = sorted(path for path in tmp_path.rglob("*") if "releases" not in path.parts)
    refused = box.send_code(pack("hash0002", tree, extra=extra))
    assert refused.returncode == 2, refused.stderr
    assert b"Traceback" not in refused.stderr
    assert tree_of(box) == FIRST
    assert litter(box) == []
    after = sorted(path for path in tmp_path.rglob("*") if "releases" not in path.parts)
    assert [path for path in after if path not in before] == []


def test_a_tree_that_is_not_what_its_manifest_says_is_refused(box: Box) -> None:
    """A size that differs, an entry that is missing, another tree's manifest: exit code 2."""
    tree: dict[str, Content] = {"a": b"abc", "b": b"d"}
    wrong: list[dict[str, Content]] = [{"a": b"ab", "b": b"d"}, {"a": b"abc"}, {"a": "b", "b": b"d"}]
    for sent in wrong:
        assert box.send_code(pack("hash0001", tree, sent)).returncode == 2
    assert box.send_code(pack("../../x", tree)).returncode == 2
    assert box.call("code-hash").stdout == b"\n"


def test_sent_files_that_are_not_in_the_manifest_are_dropped(box: Box) -> None:
    """Only files in the manifest are part of the tree."""
    tree: dict[str, Content] = {"a": b"abc"}
    assert box.send_code(pack("hash0001", tree, {**tree, "stray": b"x", "link": "a"})).returncode == 0
    assert tree_of(box) == tree


def test_releases_that_nobody_uses_are_removed(box: Box) -> None:
    """The current one, the previous one and the one that the run uses are kept."""
    receive(box, "hash0001", {"v": b"1"})
    box.start("echo up; cat v; sleep 1000")
    wait_for(lambda: " up\n" in box.log())
    for number in (2, 3, 4):
        receive(box, f"hash000{number}", {"v": b"%d" % number})

    def kept() -> set[str]:
        return {path.name for path in (box.root / "releases").iterdir() if not path.name.startswith(".")}

    wait_for(lambda: kept() == {"hash0001", "hash0003", "hash0004"})
    box.ask("stop")
    box.start("cat v; echo")
    box.await_state("succeeded")
    assert " 4\n" in box.log()


def test_results_survive_a_change_of_the_code(box: Box) -> None:
    """Output folders of the tree become links; files in them are copied to the results, never over a result."""
    tree: dict[str, Content] = {"train.sh": b"", "runs/keep.txt": b"from the code\n", "data/raw/x": b"tracked"}
    receive(box, "hash0001", tree)
    (box.root / "data/data").mkdir(parents=True)
    (box.root / "data/data/sent").write_text("data\n")
    config: dict[str, Any] = {"outputs": ["runs"], "data": ["data"]}
    box.start("cat runs/keep.txt data/sent; echo mine > runs/keep.txt; echo result > runs/result", **config)
    box.await_state("succeeded")
    assert " from the code\n" in box.log()
    done = box.send_code(pack("hash0002", {**tree, "train.sh": b"#"}, {"train.sh": b"#"}), base="hash0001")
    assert done.returncode == 0, done.stderr
    assert (box.root / "code/runs/result").read_text() == "result\n"
    assert (box.root / "code/runs/keep.txt").read_text() == "mine\n"
    assert (box.root / "code/data/sent").read_text() == "data\n"
