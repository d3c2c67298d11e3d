"""Lists a work tree with git, so that a stranger's repository can't make git run anything.

Git runs programs that a repository's configuration names: `core.fsmonitor`, hooks, the program that fetches a missing
object. There is an option against each of these, but older versions silently ignore it. Therefore git never sees the
configuration, whatever its version: it works on a new, empty repository of kedge's own. From the stranger's repository
it takes only data: the index, the objects and `info/exclude`. The user's own configuration, in the home folder, still
applies.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.sync.worktree.bounded import OverLimitError, run_bounded
from orchestrator.adapters.sync.worktree.repository import Repository
from orchestrator.core.errors import BadRequestError, KedgeError

_TIMEOUT_SECONDS = 120
_LOOK_SECONDS = 2
_CONFIG_TIMEOUT_SECONDS = 10
# Enough for four million paths of usual length.
_LIMIT_BYTES = 256 << 20
_NOT_FOUND = 127

# Variables of a git hook that would redirect git to another repository. Source: `git rev-parse --local-env-vars`.
_FORGOTTEN = (
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_COMMON_DIR"),
    *("GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_REPLACE_REF_BASE"),
    *("GIT_SHALLOW_FILE",),
)
# Without a configuration, git has nothing to run or fetch with; these options forbid it as well, if git knows them.
_SETTINGS = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
# Empty, because git before 2.36 takes `false` for the name of a program.
_OPTIONS = ("-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}")

# The only settings of a repository that change which files are listed.
_LISTED = ("core.excludesfile", "core.ignorecase", "core.precomposeunicode")
_FORMAT = "extensions.objectformat"
_INTERESTING = re.compile(rb"excludesfile|ignorecase|precomposeunicode|objectformat|include", re.IGNORECASE)


class NoGitError(KedgeError):
    """Git isn't installed on this computer."""


def list_work_tree(repository: Repository, folder: Path) -> list[str]:
    """List the files in a folder of a work tree that are tracked, or untracked and not ignored; relative to the folder.

    Names from the index aren't checked, and may lead anywhere. A submodule is listed by its name, a nested repository
    with a slash at its end; git doesn't list their files.

    Raises:
        NoGitError: git isn't installed.
        BadRequestError: git can't read the repository, or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="kedge-git-") as made:
        own = _OwnRepository(Path(made), repository)
        own.write()
        exclude = [f"--exclude-from={repository.exclude}"] if repository.exclude.is_file() else []
        argv = [*own.git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *exclude]
        with _explained(folder):
            done = run_bounded(
                argv,
                cwd=folder,
                seconds=_TIMEOUT_SECONDS,
                limit=_LIMIT_BYTES,
                seconds_until_look=_LOOK_SECONDS,
                look=lambda: _refuse_pipes(folder),
            )
    _require_success(folder, done.exit_code, os.fsdecode(done.stderr).strip())
    # A path in conflict is listed once for each of its versions, so duplicates are dropped.
    listed = dict.fromkeys(os.fsdecode(done.stdout).split("\0"))
    listed.pop("", None)
    return list(listed)


class _OwnRepository:
    """A repository of kedge's own, with another's index."""

    def __init__(self, place: Path, other: Repository) -> None:
        self._place = place
        self._other = other

    @property
    def git(self) -> list[str]:
        """The first part of git's argv."""
        settings = _SETTINGS | {
            "GIT_DIR": str(self._place),
            "GIT_WORK_TREE": str(self._other.top),
            "GIT_INDEX_FILE": str(self._other.index),
            "GIT_OBJECT_DIRECTORY": str(self._other.objects),
        }
        forgotten = [word for name in _FORGOTTEN for word in ("-u", name)]
        return ["env", *forgotten, *(f"{name}={value}" for name, value in settings.items()), "git", *_OPTIONS]

    def write(self) -> None:
        for name in ("objects", "refs"):
            (self._place / name).mkdir()
        write_atomically(self._place / "HEAD", b"ref: refs/heads/kedge\n")
        self._write_config({})
        for shared in self._other.shared_indexes():
            (self._place / shared.name).symlink_to(shared)
        if _INTERESTING.search(self._other.read_config()):
            self._write_config(self._read_other())

    def _read_other(self) -> dict[str, str]:
        """Have git parse the other's configuration as a plain file, without applying it."""
        argv = [*self.git, "config", "--file", str(self._other.config), "--includes", "--null", "--list"]
        with _explained(self._other.top):
            done = run_bounded(argv, cwd=self._place, seconds=_CONFIG_TIMEOUT_SECONDS, limit=_LIMIT_BYTES)
        _require_success(self._other.top, done.exit_code, os.fsdecode(done.stderr).strip())
        rows = (row.partition("\n") for row in os.fsdecode(done.stdout).split("\0"))
        return {name: value if line else "true" for name, line, value in rows if name in {*_LISTED, _FORMAT}}

    def _write_config(self, kept: Mapping[str, str]) -> None:
        version = 1 if _FORMAT in kept else 0
        rows = {"core.repositoryformatversion": str(version), "core.bare": "false"} | dict(kept)
        lines = (f"[{name.partition('.')[0]}]\n\t{name.partition('.')[2]} = {_quoted(rows[name])}\n" for name in rows)
        write_atomically(self._place / "config", os.fsencode("".join(lines)))


def _quoted(value: str) -> str:
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        value = value.replace(plain, written)
    return f'"{value}"'


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except TimeoutError as err:
        raise BadRequestError(
            f"git didn't list {folder} in time", why=str(err), fix="check what `git ls-files` waits for there"
        ) from err
    except OverLimitError as err:
        raise BadRequestError(
            f"git lists too many files in {folder} for code", why=str(err), fix="name a smaller folder as `workdir`"
        ) from err


def _refuse_pipes(folder: Path) -> None:
    """Refuse a pipe in the place of a `.gitignore`, which git would read forever."""
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        if ".gitignore" in names and not (odd := Path(here) / ".gitignore").is_file() and odd.exists():
            raise BadRequestError(f"{odd} is not a regular file", why="git would read it forever", fix="remove it")


def _require_success(folder: Path, exit_code: int, said: str) -> None:
    if exit_code == _NOT_FOUND:
        raise NoGitError("git isn't installed")
    if exit_code != 0:
        raise BadRequestError(
            f"git can't list the code in {folder}",
            why=said.splitlines()[-1] if said else f"it exited with {exit_code}",
            fix="run `git status` there and do what it says",
        )
