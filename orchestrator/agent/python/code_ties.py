"""Finds out whether what `setup` did is tied to the code's folder: then it has to run again in the folder of new code.

A new release is another folder: it doesn't have what `setup` wrote into the old one, and links into that one break.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..base.layout import Layout
from ..base.tree_rule import upper_folders
from ..code.releases import read_record
from .job_env import folder_of

Tree = Mapping[str, object]
"""Path -> what changes when it is written: size, time and mode of a file, target of a link, nothing of a folder."""

_LITTER = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".DS_Store"}
)
_LITTER_SUFFIXES = (".pyc", ".pyo", ".swp")
_SHOWN = 200
_OWN_PATH = re.compile(r"\$\{?PWD\b|\bpwd\b")
# Most lines of a list of requirements have no path; to split them into words takes seconds.
_PATH = re.compile(r"(?:^|[\s='\":-])\.|/|-e")
_INSTALLING = frozenset({"install", "develop"})


def read_tree(folder: Path) -> Tree:
    """List a folder, without caches of Python and of its tools."""
    return dict(_walk(str(folder)))


def read_sent_tree(release: Path) -> Tree:
    """List a release as it was received; links, and files that links have replaced, as they are now."""
    files = read_record(release).get("files", {})
    folders = {str(upper) for path in files for upper in Path(path).parents} - {"."}
    links = {path: found for path, found in read_tree(release).items() if isinstance(found, str)}
    sent = {**dict.fromkeys(folders), **{path: tuple(stamp) for path, stamp in files.items()}}
    return {path: found for path, found in sent.items() if links.keys().isdisjoint(upper_folders(path))} | links


def find_written(before: Tree, after: Tree) -> str:
    """Say which path was written or removed between two listings; empty for none."""
    written = sorted(
        (path for path in after if before.get(path, "none") != after[path]),
        key=lambda path: (after[path] is None, path),
    )
    if written:
        # A file rather than its folder.
        return f"it wrote {_shown(written[0])} into the code's folder"
    if removed := next((path for path in sorted(before) if path not in after), ""):
        return f"it removed {_shown(removed)} from the code's folder"
    return ""


def find_installed(layout: Layout, release: Path) -> str:
    """Say which package was installed from the code's folder, editable or as a copy; empty for none.

    It looks into the run's environment and the user's own packages. Source: PEP 610 (direct_url.json), and the .pth
    files by which setuptools, hatchling, flit and poetry make editable installs.
    """
    code = str(release.resolve())
    homes = (folder_of(layout), Path(os.path.expanduser("~/.local")))  # noqa: PTH111 - pathlib raises without a home
    for packages in (folder for home in homes for folder in sorted(home.glob("lib/python*/site-packages"))):
        for note in sorted(packages.glob("*.dist-info/direct_url.json")):
            if _leads_into(_read_url(note), code):
                return f"it installed {_shown(note.parent.name.partition('-')[0])} from the code's folder"
        for note in sorted((*packages.glob("*.pth"), *packages.glob("__editable__*"), *packages.glob("*.egg-link"))):
            if any(_leads_into(path, code) for path in _read_paths(note)):
                return f"it linked the code's folder into {packages.parent.name}'s packages ({_shown(note.name)})"
    return ""


def find_in_setup(release: Path, setup: str, texts: Iterable[tuple[str, str]]) -> str:
    """Say which line installs from the code's folder, or uses its path; empty for none.

    Args:
        release: the code's folder.
        setup: the script.
        texts: name and content of the scripts and lists of requirements that it uses.
    """
    for number, line in enumerate(setup.splitlines(), 1):
        if _OWN_PATH.search(line):
            return f"line {number} of setup uses the path of the code's folder"
        if _installs(release, line):
            return f"line {number} of setup installs from the code's folder"
    for name, text in texts:
        is_list = not name.endswith((".sh", ".bash", "Makefile"))
        if any(_installs(release, f"install {line}" if is_list else line) for line in text.splitlines()):
            return f"{_shown(name)} installs from the code's folder"
    return ""


def _walk(root: str) -> Iterator[tuple[str, object]]:
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        for entry in _entries(f"{root}/{prefix}"):
            if entry.name in _LITTER or entry.name.endswith(_LITTER_SUFFIXES):
                continue
            path = f"{prefix}{entry.name}"
            # What can't be read, or is removed at this moment, is left out.
            with contextlib.suppress(OSError):
                yield path, _stamp(entry)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _stamp(entry: os.DirEntry[str]) -> object:
    if entry.is_dir(follow_symlinks=False):
        return None
    if entry.is_symlink():
        return os.readlink(entry.path)  # noqa: PTH115 - bytes that are no UTF-8
    status = entry.stat(follow_symlinks=False)
    return status.st_size, status.st_mtime_ns, int(bool(status.st_mode & stat.S_IXUSR))


def _installs(release: Path, line: str) -> bool:
    if not _PATH.search(line):
        return False
    for command in re.split(r"[;&|]+", line):
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            words = command.split()
        start = next((at for at, word in enumerate(words) if word in _INSTALLING), len(words))
        if any(_is_code(release, word) for word in words[start + 1 :]):
            return True
    return False


def _is_code(release: Path, word: str) -> bool:
    path = word.partition("[")[0].removeprefix("--editable=").removeprefix("-e").removeprefix("file:")
    if path == ".." or path.startswith("../"):
        # The script, or a list of requirements, has another folder.
        return True
    is_path = path.startswith(".") or "/" in path
    # Data is linked into the folder. pathlib raises for words that can't be a path.
    is_folder = is_path and os.path.isdir(f"{release}/{path}")  # noqa: PTH112
    return is_folder and _leads_into(f"{release}/{path}", str(release.resolve()))


def _leads_into(path: str, folder: str) -> bool:
    return bool(path) and Path(os.path.realpath(path)).is_relative_to(folder)


def _read_url(note: Path) -> str:
    try:
        url = urlsplit(str(json.loads(note.read_bytes())["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return unquote(url.path) if url.scheme == "file" else ""


def _read_paths(note: Path) -> Iterator[str]:
    """Yield the absolute paths in a .pth file, or in the Python of an editable install."""
    try:
        text = note.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        yield from (path for path in (line, *re.findall(r"['\"](/[^'\"]+)['\"]", line)) if path.startswith("/"))


def _shown(path: str) -> str:
    return (path if path.isprintable() else ascii(path))[:_SHOWN]
