"""The one rule for trees, as the machine keeps it; the laptop's half, orchestrator/core/tree.py, explains it."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path


def is_tree_path(path: str) -> bool:
    """Tell whether a path names something in a tree: relative, and without empty parts, `.` and `..`."""
    return _is_text_of_names(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link can't leave its tree: it is relative, and `..` stands at its beginning alone, if at all."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    is_plain = bool(target) and not target.startswith("/") and _is_text_of_names(target) and ".." not in parts[ups:]
    return is_plain and ups <= path.count("/")


def plain_link(path: str, leads_to: str) -> str:
    """Write the link at a path that leads to another path of its tree, `.` for the top, as `stays_inside` wants it."""
    return posixpath.relpath(leads_to, posixpath.dirname(path) or ".")


def upper_folders(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def find_fault(paths: Iterable[str], links: Mapping[str, str], no_folders: Collection[str]) -> str:
    """Say what no tree may hold in a listing of one; empty where it is a tree.

    Args:
        paths: everything in it.
        links: path -> what it holds.
        no_folders: links and files, below which nothing lies.
    """
    for path in paths:
        if not is_tree_path(path):
            return f"{path!r} is no path in it"
        if upper := next((upper for upper in upper_folders(path) if upper in no_folders), ""):
            return f"{path!r} lies below {upper!r}, which is no folder"
    leaving = next((path for path, target in links.items() if not stays_inside(path, target)), "")
    return f"the link {leaving!r} leaves it" if leaving else ""


def make_folders(root: Path, path: str) -> None:
    """Make the folders that a path of a tree lies in; none of them may be a link.

    Raises:
        NotADirectoryError: a link, or a file, is in the way.
    """
    for upper in (root / folder for folder in reversed(list(upper_folders(path)))):
        try:
            upper.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(upper).st_mode):
                raise NotADirectoryError(f"a link, or a file, is in the way at {str(upper)!r}") from None


def _is_text_of_names(text: str) -> bool:
    """Tell whether a file system can hold a text: JSON may have halves of letters that stand for no byte."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
