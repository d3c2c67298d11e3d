"""The one rule for trees: of code, data and results, whether they are sent, fetched, restored or unpacked.

A tree has files, folders and links, each at a path that names it from the tree's top. Nothing lies below a link, and a
link leads up from where it lies before it leads down: then no link leaves the tree, by way of others neither, whatever
order they are made in. The agent's half is orchestrator/agent/treerule.py; tests/contract/test_tree_rule.py compares
both, and tries the rule against a real file system.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

RENAMED = "kedge-renamed"
"""What a file is called that isn't to be what it was."""

LINK_LEAVES = "it is a link that leaves the results"
BELOW_A_LINK = "a link, or a file, is in the way of its folder"

OF_REPOSITORIES = {
    "head": f"HEAD.{RENAMED}",
    ".git": f"git.{RENAMED}",
    "hgrc": f"hgrc.{RENAMED}",
    "hgrc-not-shared": f"hgrc-not-shared.{RENAMED}",
}
"""What has git or Mercurial run what a folder says, in small letters -> its name at home. `home_path` explains it."""

# Code points that HFS+ doesn't see in names: git's utf8.c, next_hfs_char (git 2.47).
_UNSEEN = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a copy of results has made other than it was.

    Attributes:
        left_out: path -> why it didn't come.
        renamed: path -> the path that it has at home.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def is_tree_path(path: str) -> bool:
    """Tell whether a path names something in a tree: relative, and without empty parts, `.` and `..`."""
    return _is_text_of_names(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link can't leave its tree: it is relative, and `..` stands at its beginning alone, if at all.

    Args:
        path: the link's own, in the tree; its folders are no links.
        target: what it holds.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    is_plain = bool(target) and not target.startswith("/") and _is_text_of_names(target) and ".." not in parts[ups:]
    return is_plain and ups <= path.count("/")


def plain_link(path: str, leads_to: str) -> str:
    """Write the link at a path that leads to another path of its tree, `.` for the top, as `stays_inside` wants it."""
    return posixpath.relpath(leads_to, posixpath.dirname(path) or ".")


def home_path(path: str) -> str:
    """Return where a result that isn't a folder lies at home.

    git takes a folder for a repository, and runs what its configuration names, only with a HEAD in it, and follows a
    file `.git` to one (git 2.47, setup.c). Mercurial takes any folder with a folder `.hg` for one, and runs what a file
    `hgrc` or `hgrc-not-shared` names, there or where `.hg/sharedpath` leads (Mercurial 7.2, localrepo.loadhgrc). None
    of them comes home under that name, wherever it lies, so that a name never depends on what else is there.
    """
    folder, slash, name = path.rpartition("/")
    known = OF_REPOSITORIES.get(name.translate(_UNSEEN).casefold())
    return f"{folder}{slash}{known}" if known else path


def upper_folders(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def _is_text_of_names(text: str) -> bool:
    """Tell whether a file system can hold a text: JSON may have halves of letters that stand for no byte."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
