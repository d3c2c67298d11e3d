"""Lists the files of a folder that are its code: those that git would keep, or all without caches and environments."""

from __future__ import annotations

import functools
import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.adapters.host.files import read_small
from orchestrator.adapters.incoming.results_folders import RESULTS
from orchestrator.adapters.sync.worktree.git import NoGitError, list_work_tree
from orchestrator.adapters.sync.worktree.repository import Repository, find_repository, open_repository
from orchestrator.core.errors import BadRequestError

IGNORE_FILE = ".kedgeignore"

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
_IGNORE_BYTES = 1 << 18
# Each takes a process; projects have dozens at most.
_MOST_REPOSITORIES = 500


def list_code(root: Path) -> list[str]:
    """List the paths of a folder's code, relative to it.

    In a git work tree, those are the files that are tracked, or untracked and not ignored, also in submodules and
    nested repositories. Elsewhere, it is everything except caches, environments and version control. A `.kedgeignore`
    (gitignore's syntax) at the top excludes more in both cases. A repository's configuration and index aren't trusted:
    nothing that they name is run, and no path leaves the folder.

    Raises:
        BadRequestError: the repository can't be read.
    """
    paths = _list_git(root) or list(_walk(root))
    ignored = _ignored(root)
    return [path for path in paths if path.partition("/")[0] != RESULTS and not ignored(path)]


def list_package(root: Path) -> list[str]:
    """List the files of an installed Python package, without regard to a repository around it."""
    return list(_walk(root))


def _list_git(root: Path) -> list[str]:
    """List a work tree's files; empty if git knows none, as in a folder that an outer repository ignores."""
    repository = find_repository(root)
    if repository is None:
        if (root / ".gitignore").exists():
            _say_once("%s isn't in a git repository: its .gitignore doesn't count, a .kedgeignore does", root)
        return []
    try:
        return list(_list_repositories(root, repository))
    except NoGitError:
        _say_once("git isn't installed: .gitignore doesn't count in %s", root)
        return []


@functools.cache
def _say_once(text: str, root: Path) -> None:
    # A launch lists its code several times.
    _log.warning(text, root)


def _list_repositories(root: Path, outermost: Repository) -> Iterator[str]:
    inside = _Inside(root)
    waiting = deque([("", outermost)])
    found = 1
    while waiting:
        prefix, repository = waiting.popleft()
        for path in list_work_tree(repository, root / prefix):
            full = f"{prefix}{path}"
            if not inside.has(full):
                continue
            if not inside.is_folder(full.rstrip("/")):
                yield full
            # A submodule is listed by its name, a nested repository with a slash.
            elif (nested := open_repository(root / full)) is not None:
                waiting.append((f"{full.rstrip('/')}/", nested))
                found += 1
                _require_few(root, found)
            else:
                _log.warning("the submodule %s isn't checked out, and is left out", full)


def _require_few(root: Path, repositories: int) -> None:
    if repositories > _MOST_REPOSITORIES:
        raise BadRequestError(
            f"{root} holds more than {_MOST_REPOSITORIES} git repositories", fix="name a smaller folder as `workdir`"
        )


class _Inside:
    """Tells whether paths are inside a folder, because a manipulated index may name any file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = {"": True}

    def has(self, path: str) -> bool:
        """Tell whether a path is inside the folder, outside `.git`, and reached through no link."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return _is_name(name) and not path.startswith("/") and self._is_real(folder)

    def is_folder(self, path: str) -> bool:
        """Tell whether a path is a folder, not a link."""
        try:
            return stat.S_ISDIR(os.lstat(f"{self._root}/{path}").st_mode)
        except OSError:
            return False

    def _is_real(self, folder: str) -> bool:
        if folder not in self._folders:
            place, real = "", True
            # From the top, because a path in an index may be deeper than Python can recurse.
            for name in folder.split("/"):
                place = f"{place}/{name}" if place else name
                if place not in self._folders:
                    self._folders[place] = real and _is_name(name) and self.is_folder(place)
                real = self._folders[place]
        return self._folders[folder]


def _is_name(name: str) -> bool:
    return name not in {"", ".", ".."} and name.lower() != ".git"


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        # os.walk lists a link to a folder among the folders, but doesn't enter it.
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        folders[:] = sorted(name for name in folders if name not in _LITTER_NAMES)
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        yield from (f"{prefix}{name}" for name in [*files, *links] if not is_litter(name))


def is_litter(name: str) -> bool:
    """Tell whether a name is that of a cache, an environment or version control, which are never sent."""
    return name in _LITTER_NAMES or name.endswith(_LITTER_SUFFIXES)


def _ignored(root: Path) -> Callable[[str], bool]:
    try:
        text = read_small(root / IGNORE_FILE, limit=_IGNORE_BYTES)
    except FileNotFoundError:
        return lambda _: False
    # Imported only if there is such a file.
    from orchestrator.adapters.sync.worktree.ignoring import IgnoreRules  # noqa: PLC0415

    return IgnoreRules(text).ignores
