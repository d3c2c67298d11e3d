"""A tree of code in the making: from a stream that is not to be trusted, and from the release before."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import IO, Any, cast

from .errors import AgentError, RequestError
from .releases import original, remove

MANIFEST = ".kedge-manifest.json"
_MANIFEST_LIMIT_BYTES = 256 << 20

Stamp = list[int]
"""Size, modification time in ns, executable (1) or not (0); a link has none."""


class Tree:
    """Collect members, then make the tree what the manifest says, or refuse."""

    def __init__(self, folder: Path, base: Path | None) -> None:
        self._folder = folder
        self._base = base
        self._folders: set[Path] = set()
        self._links: dict[str, str] = {}
        self._files: set[str] = set()
        self._manifest: dict[str, Any] | None = None

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Take one member.

        Raises:
            RequestError: it is absolute, leaves the tree, or is neither file, folder nor link.
        """
        if self._manifest is not None:
            raise _refused(member.name, "nothing may come after the manifest")
        if member.name == MANIFEST and member.isreg():
            self._manifest = _read_manifest(tar, member)
        elif member.isdir():
            return
        elif member.issym():
            self._links[_checked(member.name)] = member.linkname
        elif member.isreg():
            self._write(tar, member)
        else:
            raise _refused(member.name, "only files, folders and symbolic links can be code")

    def complete(self, content_hash: str) -> list[dict[str, Any]]:
        """Add what is unchanged from the base, drop what the manifest doesn't list, and return its entries.

        Raises:
            AgentError: the manifest is missing: the stream was cut.
            RequestError: the tree isn't what the manifest says.
        """
        if self._manifest is None:
            raise AgentError("the stream of code was cut", why="its manifest is missing", fix="send it again")
        if self._manifest.get("hash") != content_hash:
            raise RequestError("the manifest is of another tree", why=f"expected {content_hash}")
        entries = [_parse_entry(raw) for raw in self._manifest["entries"]]
        for path in (self._files | self._links.keys()) - {entry["path"] for entry in entries}:
            self._links.pop(path, None)
            remove(self._folder / path)
        for entry in sorted(entries, key=lambda entry: entry["type"] == "link"):
            if entry["type"] == "link":
                self._place_link(entry)
            else:
                self._place_file(entry)
        for path in (entry["path"] for entry in entries if entry["type"] == "link"):
            self._check_link(path)
        return entries

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _checked(member.name)
        target = self._make_room(path)
        content = cast("IO[bytes]", tar.extractfile(member))
        # Links are made last: until then nothing can be written through one.
        try:
            with target.open("wb") as stream:
                shutil.copyfileobj(content, stream, 1 << 20)
                os.fchmod(stream.fileno(), 0o755 if member.mode & 0o100 else 0o644)
        except IsADirectoryError as err:
            raise _refused(path, "a folder is in the way") from err
        self._files.add(path)

    def _make_room(self, path: str) -> Path:
        target = self._folder / path
        try:
            if target.parent not in self._folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._folders.add(target.parent)
        except (FileExistsError, NotADirectoryError) as err:
            raise _refused(path, "a file is in the way of a folder") from err
        return target

    def _place_file(self, entry: dict[str, Any]) -> None:
        path = entry["path"]
        if path not in self._files:
            self._copy_from_base(path, entry["mode"])
        try:
            found = (self._folder / path).lstat()
        except OSError as err:
            raise _refused(path, "the manifest lists it, and it is not there") from err
        is_executable = bool(found.st_mode & 0o100)
        if found.st_size != entry["size"] or is_executable != bool(entry["mode"] & 0o100):
            raise _refused(path, "its size or mode is not what the manifest says")

    def _copy_from_base(self, path: str, mode: int) -> None:
        if self._base is None:
            raise _refused(path, "the manifest lists it, and it was not sent")
        try:
            target = self._make_room(path)
            shutil.copyfile(original(self._base, path), target, follow_symlinks=False)
            if mode & 0o100:
                target.chmod(0o755)
        except OSError as err:
            raise _refused(path, f"the base doesn't have it ({err.strerror})") from err

    def _place_link(self, entry: dict[str, Any]) -> None:
        path, target = entry["path"], entry["link"]
        if self._links.get(path, target) != target:
            raise _refused(path, "it points elsewhere than the manifest says")
        if not target or target.startswith("/") or "\0" in target:
            raise _refused(path, "a link must be relative")
        try:
            self._make_room(path).symlink_to(target)
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


def describe_tree(folder: Path, entries: list[dict[str, Any]]) -> dict[str, Stamp]:
    """Stamp every file, so that a later difference can tell whether the run has changed it."""
    return {entry["path"]: _stamp(folder / entry["path"]) for entry in entries if entry["type"] == "file"}


def is_as_recorded(release: Path, stamps: dict[str, Stamp]) -> bool:
    """Say whether every file of a release is still what was received."""
    try:
        return all(_stamp(original(release, path)) == stamp for path, stamp in stamps.items())
    except OSError:
        return False


def _stamp(path: Path) -> Stamp:
    status = path.lstat()
    return [status.st_size, status.st_mtime_ns, int(bool(status.st_mode & 0o100))]


def _read_manifest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    content = tar.extractfile(member)
    if content is None or member.size > _MANIFEST_LIMIT_BYTES:
        raise _refused(MANIFEST, "it can't be read")
    try:
        manifest = json.loads(content.read())
    except ValueError as err:
        raise _refused(MANIFEST, "it is not JSON") from err
    if not isinstance(manifest, dict) or not isinstance(manifest.get("entries"), list):
        raise _refused(MANIFEST, "it has no entries")
    return manifest


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
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise _refused(path, "its name is absolute, or leaves the tree")
    return path


def _refused(path: str, why: str) -> RequestError:
    shown = path.encode(errors="backslashreplace").decode()
    return RequestError(f"the code holds {shown!r}, which is refused", why=why)
