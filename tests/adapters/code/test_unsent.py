"""Which files of a working folder are not sent, and how a plan reports them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.sync.worktree.unsent import find_unsent
from orchestrator.core.values.unsent import Unsent, UnsentPath, describe_unsent


def write(root: Path, path: str, size: int = 1) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.email=me@example.org", "-c", "user.name=me", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def named(found: Unsent | None) -> list[tuple[str, int, int]]:
    return [(path.path, path.files, path.bytes) for path in found.paths] if found else []


@pytest.fixture
def nano(tmp_path: Path) -> Path:
    """A repository like nanoGPT's: beside its code it has prepared data, which git ignores."""
    root = tmp_path / "nano"
    root.mkdir()
    git(root, "init", "-q")
    (root / ".gitignore").write_text("*.bin\nout*/\nenv/\n.venv/\n__pycache__/\n")
    write(root, "train.py")
    write(root, "data/shakespeare/prepare.py")
    write(root, "data/shakespeare/train.bin", 9_000_000)
    write(root, "out-gpt2/a/ckpt.pt", 500)
    write(root, "out-gpt2/b.txt", 20)
    for litter in (".venv/lib/torch.so", "env/pyvenv.cfg", "env/lib/torch.so", "data/__pycache__/prepare.pyc"):
        write(root, litter, 10_000_000)
    return root


def test_ignored_files_are_listed_largest_first_with_folders_as_one_entry(nano: Path) -> None:
    """Virtual environments and caches are not listed."""
    found = find_unsent(nano, seconds=60)
    assert found is not None
    assert named(found) == [("data/shakespeare/train.bin", 1, 9_000_000), ("out-gpt2/", 2, 520)]
    assert (found.by, found.files, found.bytes, found.is_whole) == ("git", 3, 9_000_520, True)
    assert describe_unsent(found) == (
        "not sent (see `data`): 3 files, 9.0 MB, ignored by git",
        "  data/shakespeare/train.bin (9.0 MB)",
        "  out-gpt2/ (520 B)",
    )


def test_files_that_reach_the_machine_otherwise_are_not_listed(nano: Path) -> None:
    """Data that the job sends, and the job's own outputs."""
    assert find_unsent(nano, {"data/shakespeare/train.bin", "out-gpt2"}, seconds=60) is None


def test_a_work_tree_and_a_submodule_have_their_own_rules(nano: Path, tmp_path: Path) -> None:
    """A second work tree has the rules of its repository, a submodule has its own."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / ".gitignore").write_text("*.npy\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    git(nano, "submodule", "add", "-q", str(inner), "lib")
    git(nano, "add", "-A")
    git(nano, "commit", "-qm", "outer")
    git(nano, "worktree", "add", "-q", str(tmp_path / "tree"))
    write(nano, "lib/x.npy", 300)
    write(tmp_path / "tree", "data/shakespeare/train.bin", 7)
    assert ("lib/x.npy", 1, 300) in named(find_unsent(nano, seconds=60))
    assert named(find_unsent(tmp_path / "tree", seconds=60)) == [("data/shakespeare/train.bin", 1, 7)]


def test_without_git_the_rules_of_kedgeignore_are_used(tmp_path: Path) -> None:
    """Without such a file nothing is listed."""
    write(tmp_path, "train.py")
    write(tmp_path, "sets/faces.tar", 4000)
    assert find_unsent(tmp_path, seconds=60) is None
    (tmp_path / ".kedgeignore").write_text("sets/\n")
    found = find_unsent(tmp_path, seconds=60)
    assert named(found) == [("sets/", 1, 4000)]
    assert found is not None
    assert found.by == ".kedgeignore"


def test_a_folder_with_very_many_files_is_not_counted_completely(nano: Path) -> None:
    """A plan does not wait for a million images; it says "more than"."""
    folder = nano / "out-images"
    folder.mkdir()
    for number in range(10_050):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
    (folder / "deeper").mkdir()
    write(folder, "deeper/one", 10)
    found = find_unsent(nano, seconds=60)
    assert found is not None
    assert not found.is_whole
    assert describe_unsent(found)[0].startswith("not sent (see `data`): more than ")


def test_names_that_are_not_utf_8_can_be_written_as_json(nano: Path) -> None:
    """Such bytes are escaped."""
    write(nano, os.fsdecode(b"out-\xff/x"), 600)
    assert named(find_unsent(nano, seconds=60))[1] == ("out-\\udcff/", 1, 600)


def test_a_line_of_a_plan_fits_the_terminal() -> None:
    """The beginning of a long path is cut off."""
    paths = tuple(UnsentPath(path=f"{'deep/' * 40}{number}.bin", files=1, bytes=10**12) for number in range(9))
    lines = describe_unsent(Unsent(by="git", files=123_456, bytes=10**13, paths=paths, is_whole=False))
    assert max(map(len, lines)) <= 76
    assert lines[-1] == "  123,453 more"
