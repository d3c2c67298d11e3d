"""A tree of code in the making: from a stream that is not to be trusted, and from the release before."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .base import Base, Stamp, stamp
from .errors import AgentError, RequestError
from .layout import NAME
from .releases import remove
from .treerule import is_tree_path, stays_inside

MANIFEST = ".kedge-manifest.json"
_MANIFEST_LIMIT_BYTES = 256 << 20


class Tree:
    """Collect members, then make the tree what the manifest says, or refuse."""

    def __init__(self, folder: Path, base: Base | None) -> None:
        self._folder = folder
        self._root = str(folder)
        self._base = base
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}
        self._files: set[str] = set()
        self._manifest: dict[str, Any] | None = None

    def add(self, member: tarfile.TarInfo, content: Iterable[bytes]) -> None:
        """Take one member, and its content in pieces.

        Raises:
            RequestError: it is absolute, leaves the tree, or is neither file, folder nor link.
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
            raise _refused(member.name, "only files, folders and symbolic links can be code")

    @property
    def content_hash(self) -> str:
        """The hash of the whole tree.

        Raises:
            AgentError: the manifest is missing: the stream was cut.
        """
        if self._manifest is None:
            raise AgentError("the stream of code was cut", why="its manifest is missing", fix="send it again")
        return str(self._manifest["hash"])

    @property
    def says_unchanged(self) -> bool:
        """The stream brings nothing: it only asks whether its tree is in place."""
        return bool(self.content_hash) and "entries" not in (self._manifest or {})

    def complete(self) -> dict[str, Stamp]:
        """Add what is unchanged from the base, drop what the manifest doesn't list, and stamp every file.

        The stamps tell later whether a run has changed a file.

        Raises:
            AgentError: the manifest is missing: the stream was cut.
            NoBaseError: the base isn't what was received any more.
            RequestError: the tree isn't what the manifest says.
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
        # Links are made last: until then nothing can be written through one.
        # System calls rather than a file object: this runs thousands of times in a command.
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
            raise _refused(path, "its size or mode is not what the manifest says")
        return found

    def _stamp_received(self, path: str) -> Stamp:
        try:
            return stamp(f"{self._root}/{path}")
        except OSError as err:
            raise _refused(path, "the manifest lists it, and it is not there") from err

    def _take_from_base(self, path: str) -> Stamp:
        if self._base is None:
            raise _refused(path, "the manifest lists it, and it was not sent")
        return self._base.take(path, self._make_room(path))

    def _place_link(self, entry: dict[str, Any]) -> None:
        path, target = entry["path"], entry["link"]
        if self._links.get(path, target) != target:
            raise _refused(path, "it points elsewhere than the manifest says")
        if not stays_inside(path, target):
            raise _refused(path, "a link must be relative, and lead up before it leads down, if at all")
        try:
            os.symlink(target, self._make_room(path))  # noqa: PTH211
        except OSError as err:
            raise _refused(path, f"the link can't be made ({err.strerror})") from err

    def _check_link(self, path: str) -> None:
        # Of a tree that is complete: a link may leave it by way of another.
        root = self._folder.resolve()
        try:
            is_inside = (self._folder / path).resolve().is_relative_to(root)
        except (OSError, RuntimeError) as err:
            raise _refused(path, "the link leads nowhere but round in circles") from err
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
        raise _refused(MANIFEST, "it names no content hash")
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
    return RequestError(f"the code holds {shown!r}, which is refused", why=why)
