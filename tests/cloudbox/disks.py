"""Files that stand for EBS volumes: made when first attached, gone with their volume."""

from __future__ import annotations

import shutil
from pathlib import Path

from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.instances import Instance

from tests.cloudbox import moto_state

_GB = 1024**3


class Disks:
    """The contents of volumes and snapshots, as sparse files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def of_instance(self, instance: Instance) -> dict[str, tuple[str, str]]:
        """Return the file and the serial of each volume of an instance, by volume id; its root is no disk here."""
        found = {}
        for device, mapping in instance.get_block_device_mapping:
            if device != instance.root_device_name:
                volume = instance.ec2_backend.get_volume(mapping.volume_id)
                found[volume.id] = (str(self._file(volume)), volume.id.replace("-", ""))
        return found

    def settle(self) -> None:
        """Keep what new snapshots hold, and delete the files of volumes and snapshots that are gone."""
        known = set()
        for _, backend in moto_state.regions():
            known |= set(backend.volumes) | set(backend.snapshots)
            for snapshot in list(backend.snapshots.values()):
                source, target = self._path(snapshot.volume.id), self._path(snapshot.id)
                if source.exists() and not target.exists():
                    _copy(source, target)
        for file in self._folder.iterdir():
            if file.stem not in known:
                file.unlink()

    def _file(self, volume: Volume) -> Path:
        file = self._path(volume.id)
        if file.exists():
            return file
        snapshot = self._path(volume.snapshot_id or "none")
        if snapshot.exists():
            _copy(snapshot, file)
        with file.open("ab") as disk:
            disk.truncate(int(volume.size) * _GB)
        return file

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
