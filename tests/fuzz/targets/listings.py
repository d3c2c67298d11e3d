"""A folder with a stranger's `.git`: its index, HEAD, configuration, gitfile, ignore rules.

An input is an index (its checksum is corrected), or files and links in JSON.

Promises: every listed path is in the folder, not in `.git` and not behind a link; no program that the repository
names runs; nothing is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.adapters.sync.worktree.ignoring import IgnoreRules
from orchestrator.adapters.sync.worktree.listing import list_code
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.tree import is_tree_path, upper_folders
from tests.fuzz.target import Target
from tests.fuzz.trees import ABSOLUTE, describe, guarded

_SHA1_BYTES = 20
_MOST_FILES = 60
_SECONDS_FOR_RULES = 5.0
_ALARM = f"touch {ABSOLUTE}"
_CONFIG = f"""[core]
    repositoryformatversion = 0
    bare = false
    fsmonitor = {_ALARM}
    hooksPath = hooks
    sshCommand = {_ALARM}
    pager = {_ALARM}
[filter "x"]
    clean = {_ALARM}
    smudge = {_ALARM}
    process = {_ALARM}
"""
_REPOSITORY = {
    "README": "read me",
    ".gitattributes": "* filter=x\n",
    ".gitignore": "*.log\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": _CONFIG,
    ".git/refs/heads/x": "",
    ".git/objects/x": "",
    ".git/hooks/post-index-change": f"#!/bin/sh\n{_ALARM}\n",
}


def _run(data: bytes, folder: Path) -> None:
    described = _describe(data)
    with guarded(folder, "work"):
        work = folder / "work"
        work.mkdir()
        _lay_out(work, described)
        before = describe(work)
        rules = str(described.get("rules", "")).encode("utf-8", "surrogatepass")
        with suppress(BadRequestError):
            _ignore(rules)
        try:
            listed = list_code(work)
        finally:
            assert describe(work) == before, "listing changed something"
        for path in listed:
            _require_code(work, path)


def _describe(data: bytes) -> dict[str, Any]:
    if data.startswith(b"{"):
        with suppress(ValueError, RecursionError):
            found = json.loads(data)
            return found if isinstance(found, dict) else {}
    return {"files": {**_REPOSITORY, ".git/index": data.decode("latin-1")}, "rules": data.decode("latin-1")}


def _lay_out(work: Path, described: dict[str, Any]) -> None:
    files, links = described.get("files"), described.get("links")
    for path, content in list((files if isinstance(files, dict) else {}).items())[:_MOST_FILES]:
        if is_tree_path(path) and path:
            with suppress(OSError, ValueError):
                place = work / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(_signed(path, str(content).encode("latin-1", "replace")))
                place.chmod(0o755)
    for path, target in list((links if isinstance(links, dict) else {}).items())[:_MOST_FILES]:
        if is_tree_path(path) and path:
            with suppress(OSError, ValueError):
                place = work / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(str(target))


def _signed(path: str, content: bytes) -> bytes:
    """Correct an index's checksum; without that, git reads no further."""
    if not path.rpartition("/")[2].startswith(("index", "sharedindex")):
        return content
    body = content[:-_SHA1_BYTES]
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _require_code(work: Path, path: str) -> None:
    assert is_tree_path(path), path
    assert ".git" not in path.lower().split("/"), path
    for upper in upper_folders(path):
        assert not os.path.islink(f"{work}/{upper}"), f"{path} lies behind a link"  # noqa: PTH114 - as bytes


def _ignore(rules: bytes) -> None:
    begun = time.process_time()
    asked = IgnoreRules(rules, seconds=_SECONDS_FOR_RULES)
    for path in ("a", "a/b/c.log", "a" * 200, "a/" * 100 + "a", "\udcff/\n", "*"):
        asked.ignores(path)
    assert time.process_time() - begun < _SECONDS_FOR_RULES


TARGET = Target(
    name="listings",
    run=_run,
    allowed=(BadRequestError,),
    tokens=(
        *(
            b"DIRC\0\0\0\2\0\0\0\1",
            b"TREE",
            b"link",
            b"sdir",
            b"FSMN",
            b"UNTR",
            b"gitdir: ",
            b"ref: refs/",
            b"[include]\\npath=",
        ),
        *(b"**/", b"[!a-]", b"[[:alpha:]]", b"\\\\", b"*a*a*a*b", b"commondir", b".git/"),
    ),
    examples=150,
)
