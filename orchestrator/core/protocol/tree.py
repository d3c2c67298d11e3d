"""The rule for file trees of code, data and results, whether they are sent, fetched, restored or unpacked.

A tree has files, folders and links, each with a path relative to the tree's top. Nothing lies below a link. A link's
target may have `..` only at its beginning. Therefore no link leaves the tree, not even through other links, in whatever
order they are created. The agent's half is orchestrator/agent/base/tree_rule.py; tests/contract/test_tree_rule.py
compares both, and tests the rule on a real file system.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

RENAMED = "kedge-renamed"
"""Suffix of a file whose own name would be harmful."""

LINK_LEAVES = "it is a link that leaves the results"
BELOW_A_LINK = "a link, or a file, is in the way of its folder"

OF_REPOSITORIES = {
    "head": f"HEAD.{RENAMED}",
    ".git": f"git.{RENAMED}",
    "hgrc": f"hgrc.{RENAMED}",
    "hgrc-not-shared": f"hgrc-not-shared.{RENAMED}",
}
"""Lower-case name of a folder or file that makes git or Mercurial run things -> its new name (see `home_path`)."""

# Code points that HFS+ ignores in names: git's utf8.c, next_hfs_char (git 2.47).
_UNSEEN = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How a copy of results differs from what the machine listed.

    Attributes:
        left_out: path -> why it wasn't copied.
        renamed: path -> its path on the laptop.
        different: paths of copied files that are missing now, or differ from the machine's list.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    different: tuple[str, ...] = ()

    def with_folder(self, folder: str, other: Arrival) -> Arrival:
        """Add how a copy of one folder of the results differs, whose paths are relative to that folder."""
        return self.plus(
            Arrival(
                left_out={f"{folder}/{path}": why for path, why in other.left_out.items()},
                renamed={f"{folder}/{path}": f"{folder}/{at}" for path, at in other.renamed.items()},
                different=tuple(f"{folder}/{path}" for path in other.different),
            )
        )

    def plus(self, other: Arrival) -> Arrival:
        """Add how a copy into the same folder differs."""
        return Arrival(
            left_out={**self.left_out, **other.left_out},
            renamed={**self.renamed, **other.renamed},
            different=(*self.different, *other.different),
        )


def is_below(path: str, folders: Collection[str]) -> bool:
    """Tell whether a path is one of these files, or lies below one of these folders; without any, every path does."""
    return not folders or any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def is_tree_path(path: str) -> bool:
    """Tell whether a path is valid in a tree: relative, and without empty parts, `.` and `..`."""
    return _is_text_of_names(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link stays in its tree: its target is relative, and has `..` only at its beginning, if at all.

    Args:
        path: the link's own path in the tree; no folder of it is a link.
        target: the link's content.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    is_plain = bool(target) and not target.startswith("/") and _is_text_of_names(target) and ".." not in parts[ups:]
    return is_plain and ups <= path.count("/")


def plain_link(path: str, leads_to: str) -> str:
    """Return the content of a link to another path of its tree (`.` for the top), as `stays_inside` wants it."""
    return posixpath.relpath(leads_to, posixpath.dirname(path) or ".")


def home_path(path: str) -> str:
    """Return where a result that isn't a folder is stored on the laptop.

    git treats a folder as a repository, and runs what its configuration names, only if it has a HEAD; it also follows
    a file `.git` to one (git 2.47, setup.c). Mercurial treats any folder with a folder `.hg` as one, and runs what a
    file `hgrc` or `hgrc-not-shared` names, there or where `.hg/sharedpath` points (Mercurial 7.2,
    localrepo.loadhgrc). All these names are changed on the laptop, wherever they occur, so that a name never depends
    on its surroundings.
    """
    folder, slash, name = path.rpartition("/")
    known = OF_REPOSITORIES.get(name.translate(_UNSEEN).casefold())
    return f"{folder}{slash}{known}" if known else path


def upper_folders(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def _is_text_of_names(text: str) -> bool:
    """Tell whether a file system can store a text as a name: JSON may contain lone surrogates, which have no bytes."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
