"""Validates file trees from outside; orchestrator/core/protocol/tree.py, the laptop's half, explains the rule."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path


def is_tree_path(path: str) -> bool:
    """Whether a path is valid within a tree: relative, without empty parts, `.` and `..`."""
    return _is_text_of_names(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Whether a link can't leave its tree: it is relative, and has `..` only at its beginning."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    is_plain = bool(target) and not target.startswith("/") and _is_text_of_names(target) and ".." not in parts[ups:]
    return is_plain and ups <= path.count("/")


def plain_link(path: str, leads_to: str) -> str:
    """Return the target of a link to another path of its tree (`.`: the top), in the form that `stays_inside` takes."""
    return posixpath.relpath(leads_to, posixpath.dirname(path) or ".")


def upper_folders(path: str) -> Iterator[str]:
    """Yield a path's parent folders, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def find_fault(paths: Iterable[str], links: Mapping[str, str], no_folders: Collection[str]) -> str:
    """Return why a listing isn't a valid tree; empty if it is one.

    Args:
        paths: all paths in it.
        links: path -> target.
        no_folders: links and files, which have no children.
    """
    for path in paths:
        if not is_tree_path(path):
            return f"{path!r} is not a valid path in it"
        if upper := next((upper for upper in upper_folders(path) if upper in no_folders), ""):
            return f"{path!r} is below {upper!r}, which is not a folder"
    leaving = next((path for path, target in links.items() if not stays_inside(path, target)), "")
    return f"the link {leaving!r} leaves it" if leaving else ""


def make_folders(root: Path, path: str) -> None:
    """Create a path's parent folders; none of them may be a link.

    Raises:
        NotADirectoryError: a link or a file is in the way.
    """
    for upper in (root / folder for folder in reversed(list(upper_folders(path)))):
        try:
            upper.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(upper).st_mode):
                raise NotADirectoryError(f"a link, or a file, is in the way at {str(upper)!r}") from None


def _is_text_of_names(text: str) -> bool:
    """Whether a file system can store a name: JSON may have lone surrogates that stand for no byte."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
