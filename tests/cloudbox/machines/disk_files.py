"""Files that stand for volumes and snapshots: sparse, made when they are first needed."""

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
        """Return a volume's file: at first a copy of `source`'s, or blank where there is none; it grows to `gib`."""
        file, origin = self._path(volume_id), self._path(source or "none")
        if not file.exists() and origin.exists():
            _copy(origin, file)
        with file.open("ab") as disk:
            if disk.tell() < gib * _GIB:
                disk.truncate(gib * _GIB)
        return file

    def keep(self, snapshot_id: str, volume_id: str) -> None:
        """Keep what a volume holds now as a snapshot, unless that is kept already or nobody ever used the volume."""
        source, target = self._path(volume_id), self._path(snapshot_id)
        if source.exists() and not target.exists():
            _copy(source, target)

    def keep_only(self, known: Collection[str]) -> None:
        """Delete the files of all others."""
        for file in self._folder.iterdir():
            if file.stem not in known:
                file.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.img"


def _copy(source: Path, target: Path) -> None:
    """Copy a sparse file: where most of it is holes, they stay holes."""
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
