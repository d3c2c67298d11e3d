"""Sparse files that stand for volumes and snapshots, made when they are first needed."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

_GIB = 1024**3


class DiskFiles:
    """A folder of disk images, each named by the id of its volume or snapshot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, volume_id: str, gib: int, *, source: str = "") -> Path:
        """Return a volume's file, grown to `gib`: a new one is a copy of `source`'s file, or blank without one."""
        file, origin = self._path(volume_id), self._path(source or "none")
        if not file.exists() and origin.exists():
            _copy(origin, file)
        with file.open("ab") as disk:
            if disk.tell() < gib * _GIB:
                disk.truncate(gib * _GIB)
        return file

    def keep(self, snapshot_id: str, volume_id: str) -> None:
        """Keep a volume's current content as a snapshot, unless it is kept already or the volume was never used."""
        source, target = self._path(volume_id), self._path(snapshot_id)
        if source.exists() and not target.exists():
            _copy(source, target)

    def keep_only(self, known: Collection[str]) -> None:
        """Delete the files of all other volumes and snapshots."""
        for file in self._folder.iterdir():
            if file.stem not in known:
                file.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.img"


def _copy(source: Path, target: Path) -> None:
    """Copy a sparse file; blocks of zeros stay holes."""
    block = 1024 * 1024
    hole = bytes(block)
    part = target.with_suffix(".part")
    with source.open("rb") as reader, part.open("wb") as writer:
        while data := reader.read(block):
            if data == hole[: len(data)]:
                writer.seek(len(data), 1)
            else:
                writer.write(data)
        writer.truncate(source.stat().st_size)
    shutil.move(part, target)
