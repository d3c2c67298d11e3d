"""Builds a code tree from an untrusted stream and the base release, and verifies it against its manifest."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..base.errors import AgentError, RequestError
from ..base.layout import NAME
from ..base.tree_rule import is_tree_path, stays_inside
from .base_release import Base, Stamp, stamp
from .releases import remove

MANIFEST = ".kedge-manifest.json"
_MANIFEST_LIMIT_BYTES = 256 << 20


class Tree:
    """Collects members, then completes the tree according to the manifest, or refuses it."""

    def __init__(self, folder: Path, base: Base | None) -> None:
        self._folder = folder
        self._root = str(folder)
        self._base = base
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}
        self._files: set[str] = set()
        self._manifest: dict[str, Any] | None = None

    def add(self, member: tarfile.TarInfo, content: Iterable[bytes]) -> None:
        """Add one member.

        Raises:
            RequestError: its path is absolute or leaves the tree, or it is neither a file, a folder nor a link.
        """
        if self._manifest is not None:
            raise _refused(member.name, "nothing may come after the manifest")
        if member.name == MANIFEST and member.isreg():
            self._manifest = _read_manifest(member, content)
        elif member.isdir():
            return
        elif member.issym():
            self._links[_checked(member.name)] = member.linkname
        elif member.isreg() and not member.issparse():
            self._write(member, content)
        else:
            raise _refused(member.name, "only files, folders and symbolic links are allowed")

    @property
    def content_hash(self) -> str:
        """The hash of the whole tree.

        Raises:
            AgentError: the manifest is missing, because the stream was truncated.
        """
        if self._manifest is None:
            raise AgentError("the stream of code was truncated", why="its manifest is missing", fix="send it again")
        return str(self._manifest["hash"])

    @property
    def says_unchanged(self) -> bool:
        """Whether the stream has no content and only asks whether its tree is the current one."""
        return bool(self.content_hash) and "entries" not in (self._manifest or {})

    def complete(self) -> dict[str, Stamp]:
        """Add unchanged files from the base, remove files that the manifest doesn't list, and stamp every file.

        By the stamps a later change of a file is detected.

        Raises:
            AgentError: the manifest is missing, because the stream was truncated.
            NoBaseError: the base was changed since it was received.
            RequestError: the tree doesn't match the manifest.
        """
        manifest = self._manifest or {}
        if not isinstance(manifest.get("entries"), list):
            raise RequestError("the code's manifest has no entries")
        entries = [_parse_entry(raw) for raw in manifest["entries"]]
        for path in (self._files | self._links.keys()) - {entry["path"] for entry in entries}:
            self._links.pop(path, None)
            remove(self._folder / path)
        links = [entry for entry in entries if entry["type"] == "link"]
        stamps = {entry["path"]: self._place_file(entry) for entry in entries if entry["type"] == "file"}
        for entry in links:
            self._place_link(entry)
        for entry in links:
            self._check_link(entry["path"])
        return stamps

    def _write(self, member: tarfile.TarInfo, content: Iterable[bytes]) -> None:
        path = _checked(member.name)
        target = self._make_room(path)
        # Links are made last, so that nothing can be written through one.
        # System calls instead of a file object, because this runs thousands of times.
        try:
            file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except IsADirectoryError as err:
            raise _refused(path, "a folder is in the way") from err
        try:
            for piece in content:
                _write_all(file, piece)
            os.fchmod(file, 0o755 if member.mode & 0o100 else 0o644)
        finally:
            os.close(file)
        self._files.add(path)

    def _make_room(self, path: str) -> str:
        target = f"{self._root}/{path}"
        folder = target.rpartition("/")[0]
        try:
            if folder not in self._folders:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as in _write
                self._folders.add(folder)
        except (FileExistsError, NotADirectoryError) as err:
            raise _refused(path, "a file is in the way of a folder") from err
        return target

    def _place_file(self, entry: dict[str, Any]) -> Stamp:
        path = entry["path"]
        found = self._stamp_received(path) if path in self._files else self._take_from_base(path)
        if found[0] != entry["size"] or found[2] != int(bool(entry["mode"] & 0o100)):
            raise _refused(path, "its size or mode doesn't match the manifest")
        return found

    def _stamp_received(self, path: str) -> Stamp:
        try:
            return stamp(f"{self._root}/{path}")
        except OSError as err:
            raise _refused(path, "the manifest lists it, but it is missing") from err

    def _take_from_base(self, path: str) -> Stamp:
        if self._base is None:
            raise _refused(path, "the manifest lists it, but it was not sent")
        return self._base.take(path, self._make_room(path))

    def _place_link(self, entry: dict[str, Any]) -> None:
        path, target = entry["path"], entry["link"]
        if self._links.get(path, target) != target:
            raise _refused(path, "its target doesn't match the manifest")
        if not stays_inside(path, target):
            raise _refused(path, "a link must be relative, with `..` only at its beginning")
        try:
            os.symlink(target, self._make_room(path))  # noqa: PTH211
        except OSError as err:
            raise _refused(path, f"the link can't be made ({err.strerror})") from err

    def _check_link(self, path: str) -> None:
        # Checked when the tree is complete, because a link may leave it through another link.
        root = self._folder.resolve()
        try:
            is_inside = (self._folder / path).resolve().is_relative_to(root)
        except (OSError, RuntimeError) as err:
            raise _refused(path, "the link is part of a loop") from err
        if not is_inside:
            raise _refused(path, "the link leaves the tree")


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _read_manifest(member: tarfile.TarInfo, content: Iterable[bytes]) -> dict[str, Any]:
    if member.size > _MANIFEST_LIMIT_BYTES:
        raise _refused(MANIFEST, "it can't be read")
    try:
        manifest = json.loads(b"".join(content))
    except (ValueError, RecursionError) as err:
        raise _refused(MANIFEST, "it is not JSON") from err
    content_hash = manifest.get("hash") if isinstance(manifest, dict) else None
    if not isinstance(content_hash, str) or not NAME.fullmatch(content_hash):
        raise _refused(MANIFEST, "it has no content hash")
    return dict(manifest)


def _parse_entry(raw: object) -> dict[str, Any]:
    entry = raw if isinstance(raw, dict) else {}
    path = entry.get("path")
    if not isinstance(path, str) or entry.get("type") not in ("file", "link"):
        raise _refused(str(path), "the manifest's entry can't be read")
    size, mode, link = entry.get("size", 0), entry.get("mode", 0o644), entry.get("link", "")
    if not (isinstance(size, int) and isinstance(mode, int) and isinstance(link, str)):
        raise _refused(path, "the manifest's entry can't be read")
    return {"path": _checked(path), "type": entry["type"], "size": size, "mode": mode, "link": link}


def _checked(path: str) -> str:
    if not is_tree_path(path):
        raise _refused(path, "its name is absolute, or leaves the tree")
    return path


def _refused(path: str, why: str) -> RequestError:
    shown = path.encode(errors="backslashreplace").decode()
    return RequestError(f"the code has an invalid entry {shown!r}", why=why)
