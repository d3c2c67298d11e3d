"""Files that stand for EBS volumes: made when first attached, gone with their volume."""

from __future__ import annotations

from pathlib import Path

from moto.ec2.models.instances import Instance

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.machines.disk_files import DiskFiles


class Disks:
    """The contents of volumes and snapshots, as sparse files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._files = DiskFiles(folder)

    def of_instance(self, instance: Instance) -> dict[str, tuple[str, str]]:
        """Return the file and the by-id name of each volume of an instance, by volume id; its root is no disk here."""
        found = {}
        for device, mapping in instance.get_block_device_mapping:
            if device != instance.root_device_name:
                volume = instance.ec2_backend.get_volume(mapping.volume_id)
                file = self._files.file(volume.id, int(volume.size), source=volume.snapshot_id or "")
                found[volume.id] = (str(file), by_id(volume.id))
        return found

    def local_disk(self, instance: Instance, gib: int) -> tuple[str, str]:
        """Return the file and the by-id name of a local disk, which ends with its machine (fact: local-disk-names)."""
        file = self._files.file(_local(instance), gib)
        return str(file), f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{instance.id[2:].upper()}"

    def settle(self) -> None:
        """Keep what new snapshots hold, and delete the files of volumes, snapshots and machines that are gone."""
        known = {_local(instance) for _, instance in moto_state.instances() if instance.state not in moto_state.GONE}
        for _, backend in moto_state.regions():
            known |= set(backend.volumes) | set(backend.snapshots)
            for snapshot in list(backend.snapshots.values()):
                self._files.keep(snapshot.id, snapshot.volume.id)
        self._files.keep_only(known)


def _local(instance: Instance) -> str:
    return f"local-{instance.id}"


def by_id(volume_id: str) -> str:
    """Return the name of a volume's link in /dev/disk/by-id: its serial is its id without the dash.

    fact: aws-nvme-serials
    """
    return f"nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
