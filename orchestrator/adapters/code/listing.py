"""Which files of a folder are its code: what git would keep, or all but the usual litter."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orchestrator.core.errors import BadRequestError

IGNORE_FILE = ".kedgeignore"
RESULTS = "kedge-results"

_log = logging.getLogger(__name__)

_LITTER_NAMES = frozenset(
    {
        ".DS_Store",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        RESULTS,
    }
)
_LITTER_SUFFIXES = (".pyc", ".pyo", ".swp")

# A git hook's environment would point git to another repository; messages are read below.
_GIT = (
    *("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "-u", "GIT_PREFIX", "LC_ALL=C"),
    *("git", "--no-optional-locks"),
)
_GIT_TIMEOUT_SECONDS = 120
_NOT_FOUND = 127


def list_code(root: Path) -> list[str]:
    """List the paths of a folder's code, relative to it.

    In a git work tree that is what is tracked, or untracked and not ignored, in submodules and nested repositories
    too; elsewhere everything but caches, environments and version control. A `.kedgeignore` (gitignore's syntax) at
    the top narrows both.

    Raises:
        BadRequestError: git can't read its own repository.
    """
    paths = _list_git(root) or list(_walk(root))
    ignored = _ignored(root)
    return [path for path in paths if path.partition("/")[0] != RESULTS and not ignored(path)]


def list_package(root: Path) -> list[str]:
    """List the files of an installed Python package, whatever repository it may lie in."""
    return list(_walk(root))


def _list_git(root: Path) -> list[str]:
    """List a work tree's files; empty where git knows none, as in a folder that an outer repository ignores."""
    argv = [*_GIT, "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_GIT_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as err:
        raise BadRequestError(
            f"git didn't list {root} within {_GIT_TIMEOUT_SECONDS} seconds",
            fix="see what `git ls-files` waits for there",
        ) from err
    if done.returncode != 0:
        _explain(root, done.returncode, os.fsdecode(done.stderr).strip())
        return []
    # A path in conflict is listed once for each of its versions.
    listed = dict.fromkeys(os.fsdecode(done.stdout).split("\0"))
    listed.pop("", None)
    return list(_with_repositories(root, listed))


def _explain(root: Path, exit_code: int, said: str) -> None:
    if "not a git repository" in said:
        return
    if exit_code == _NOT_FOUND:
        if (root / ".git").exists():
            _log.warning("git isn't installed: .gitignore doesn't count in %s", root)
        return
    raise BadRequestError(
        f"git can't list the code in {root}",
        why=said.splitlines()[-1] if said else f"it exited with {exit_code}",
        fix="run `git status` there and do what it says",
    )


def _with_repositories(root: Path, listed: Iterable[str]) -> Iterator[str]:
    for path in listed:
        full = f"{root}/{path}"
        # Paths rather than Path objects: this runs for every file of every command.
        if os.path.islink(full) or not os.path.isdir(full):  # noqa: PTH112, PTH114
            yield path
            continue
        # A submodule is listed by name, a nested repository with a slash; git looks into neither.
        inner = Path(full)
        if (inner / ".git").exists():
            yield from (f"{path.rstrip('/')}/{below}" for below in _list_git(inner))
        else:
            _log.warning("the submodule %s isn't checked out, and is left out", path)


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        # os.walk takes a link to a folder for a folder, which it doesn't enter.
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        folders[:] = sorted(name for name in folders if name not in _LITTER_NAMES)
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        yield from (f"{prefix}{name}" for name in [*files, *links] if not _is_litter(name))


def _is_litter(name: str) -> bool:
    return name in _LITTER_NAMES or name.endswith(_LITTER_SUFFIXES)


def _ignored(root: Path) -> Callable[[str], bool]:
    try:
        lines = (root / IGNORE_FILE).read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return lambda _: False
    # Imported when there is such a file: it costs more than listing a thousand files.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    try:
        return GitIgnoreSpec.from_lines(lines).match_file
    except ValueError as err:
        raise BadRequestError(
            f"{root / IGNORE_FILE} can't be read", why=str(err), fix="it has the syntax of a .gitignore"
        ) from err
