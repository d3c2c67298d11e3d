"""Trees of code: packed, sent, received and compared."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agent.box import Box

Content = bytes | str
"""A file's bytes, or a link's target."""

ODD = ("with space", "quo'te\"d", "new\nline", "ünïcödé", "back\\slash", "b\udcffyte", "-dash", "deep/er/than that")
FIRST: dict[str, Content] = {
    "a.py": b"print(1)\n",
    "run.sh": b"#!/bin/sh\n",
    "link": "a.py",
    **{f"odd/{name}": b"x" for name in ODD},
}


def entry(path: str, content: Content) -> dict[str, Any]:
    is_link = isinstance(content, str)
    return {
        "path": path,
        "type": "link" if is_link else "file",
        "mode": 0o755 if path.endswith(".sh") else 0o644,
        "size": 0 if is_link else len(content),
        "digest": "",
        "link": content if is_link else "",
    }


def member(path: str, content: Content) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    info = tarfile.TarInfo(path)
    info.mode = 0o755 if path.endswith(".sh") else 0o644
    if isinstance(content, str):
        info.type, info.linkname = tarfile.SYMTYPE, content
        return info, None
    info.size = len(content)
    return info, io.BytesIO(content)


def pack(
    content_hash: str,
    tree: Mapping[str, Content],
    sent: Mapping[str, Content] | None = None,
    extra: tuple[tarfile.TarInfo, ...] = (),
) -> bytes:
    """Make a stream of a tree, or of a difference, with its manifest at the end."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
        for info in extra:
            tar.addfile(info)
        for path, content in (tree if sent is None else sent).items():
            tar.addfile(*member(path, content))
        entries = [entry(path, content) for path, content in tree.items()]
        tar.addfile(*member(".kedge-manifest.json", json.dumps({"hash": content_hash, "entries": entries}).encode()))
    return packed.getvalue()


def tree_of(box: Box) -> dict[str, Content]:
    """Read the tree in the code's folder."""
    folder = str((box.root / "code").resolve())
    found: dict[str, Content] = {}
    for here, folders, files in os.walk(folder):
        for name in files + [name for name in folders if Path(here, name).is_symlink()]:
            path = Path(here, name)
            found[os.path.relpath(path, folder)] = str(path.readlink()) if path.is_symlink() else path.read_bytes()
    return found


def litter(box: Box) -> list[str]:
    return [path.name for path in (box.root / "releases").iterdir() if path.name.startswith(".incoming")]


def unchanged(content_hash: str) -> bytes:
    """Write a stream that says that nothing has changed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(*member(".kedge-manifest.json", json.dumps({"hash": content_hash}).encode()))
    return stream.getvalue()


def receive(box: Box, content_hash: str, tree: Mapping[str, Content], **more: Any) -> None:
    done = box.send_code(pack(content_hash, tree), **more)
    assert done.returncode == 0, done.stderr.decode()
