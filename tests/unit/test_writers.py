"""What writes on the laptop goes through `adapters/host/files.py`, which follows no link."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import orchestrator

ROOT = Path(str(orchestrator.__file__)).parent
METHODS = {"write_text", "write_bytes", "touch", "mkdir", "makedirs", "symlink_to", "hardlink_to", "rename", "link"}
COPIES = {"copy", "copy2", "copyfile", "copytree", "move"}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}

# What is left, by file and call, with its reason.
EXCEPTIONS = {
    ("adapters/host/files.py", "mkdir"): "the helper itself",
    ("adapters/host/files.py", "open"): "by a descriptor",
    ("adapters/host/files.py", "os.open"): "the helper itself",
    ("adapters/sync/worktree/git.py", "mkdir"): "in a folder that was just made, with a name that nobody could know",
    ("adapters/sync/worktree/git.py", "symlink_to"): "as above",
    ("adapters/ssh/keys.py", "hardlink_to"): "fails where anything is",
    ("adapters/host/private.py", "mkdir"): "looked at afterwards, and refused unless it is a folder of the user's own",
    ("adapters/host/private.py", "os.open"): "O_EXCL, which follows no link",
    ("adapters/providers/local/ending.py", "rename"): "in the private state folder; what is moved is no link",
    ("adapters/providers/local/sshd.py", "mkdir"): "/run/sshd, root's own",
    ("adapters/incoming/arrivals.py", "mkdir"): "below the results, each folder on the way is looked at",
    ("adapters/incoming/arrivals.py", "symlink_to"): "makes a link that stays inside, in the place of what was removed",
    ("adapters/store/fetching.py", "mkdir"): "below the results, a link in its place is removed",
    ("adapters/store/fetching.py", "os.open"): "O_NOFOLLOW, in a folder that is looked at before",
    ("app/selftest/life.py", "copytree"): "in a folder that was just made, with a name that nobody could know",
    ("cli/program.py", "os.open"): "/dev/null",
    ("cli/terminal/signals.py", "os.open"): "/dev/null",
}


def test_every_writer_on_the_laptop_uses_the_helper() -> None:
    """A call that makes or changes a file by its name is the helper's, or has a reason above that still holds."""
    found = {
        (str(path.relative_to(ROOT)), call)
        for path in ROOT.rglob("*.py")
        if "agent" not in path.relative_to(ROOT).parts[:1]
        for call in writers(ast.parse(path.read_text()))
    }
    assert found == set(EXCEPTIONS)


def test_the_search_finds_what_it_is_for() -> None:
    """Each way to write by name is seen, and reading isn't."""
    source = """
        p.write_text(x); p.open("w"); p.open(mode="ab"); open(p, "x"); os.open(p, os.O_RDWR); shutil.copy2(a, b)
        p.mkdir(); open(p); p.open("rb"); os.open(p, os.O_RDONLY); tar.open(fileobj=p, mode="w"); text.replace("a", "b")
    """
    calls = list(writers(ast.parse("if True:\n" + source.replace(";", "\n       "))))
    assert sorted(calls) == ["copy2", "mkdir", "open", "open", "open", "os.open", "write_text"]


def writers(tree: ast.AST) -> Iterator[str]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return filter(None, map(writer, calls))


def writer(call: ast.Call) -> str:
    """Name what a call writes with; empty where it doesn't."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="os"), attr="open"):
            reads = "O_RDONLY" in names(call) and not FLAGS & set(names(call))
            return "" if reads else "os.open"
        case ast.Attribute(value=ast.Name(id="shutil"), attr=name) if name in COPIES:
            return name
        case ast.Attribute(attr="open") if writes(call, first=0):
            return "open"
        case ast.Name(id="open") if writes(call, first=1):
            return "open"
        case ast.Attribute(attr=name) if name in METHODS:
            return name
    return ""


def names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            yield part.attr


def writes(call: ast.Call, *, first: int) -> bool:
    """Tell whether a call has a mode that writes, in its place or by its name."""
    if any(word.arg == "fileobj" for word in call.keywords):
        return False
    modes = [*call.args[first : first + 1], *(word.value for word in call.keywords if word.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(set(text) & set("wax+") and len(text) <= 3 for text in texts)
