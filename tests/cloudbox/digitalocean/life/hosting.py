"""The link between droplets of the API and machines that run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.agent.standin import H100, MI300X
from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.account.views import private_address
from tests.cloudbox.digitalocean.life import packets
from tests.cloudbox.machines.disk_files import DiskFiles
from tests.cloudbox.machines.fleet import Fleet
from tests.cloudbox.machines.gpus import Images

if TYPE_CHECKING:
    from tests.cloudbox.digitalocean.life.metadata import MetadataService

_INTERFACE = "eth1"
"""What Linux calls a droplet's interface in its VPC; eth0 is the public one."""
# fact: do-early-ssh
_EARLY_SSHD = """\
ForceCommand echo "Please wait while we get your droplet ready..."
"""
_EARLY_UNIT = """\
[Unit]
After=ssh.service

[Service]
ExecStart=/bin/sh -c 'sleep {seconds}; rm /etc/ssh/sshd_config.d/00-early.conf; systemctl reload ssh'
"""


class Hosting:
    """Makes machines follow their droplets, and a droplet its machine when that powers itself off.

    `lock` is the box's: it is held by whatever changes droplets.
    """

    def __init__(self, account: Account, folder: Path, lock: threading.RLock) -> None:
        self._account = account
        self._files = DiskFiles(folder / "disks")
        self._fleet: Fleet[MetadataService] = Fleet(folder / "machines", lock)
        self._boots: dict[str, int] = {}
        self.images = Images()
        self.endpoint = ""
        """The URL of the box's API."""

    def settle(self) -> None:
        """Boot, end and attach what the droplets' state asks for."""
        wanted = {name_of(droplet): droplet for droplet in self._account.present() if droplet.powered}
        for link in self._fleet.links():
            droplet = wanted.get(link.name)
            if droplet is None or droplet.boots != self._boots[link.name]:
                self._fleet.unplug(link.name)
        for name, droplet in wanted.items():
            if self._fleet.find(name):
                self._fleet.attach(name, self._disks(droplet))
            else:
                self._boot(name, droplet)
            if self._fleet.network.has(name):
                self._fleet.network.admit(name, packets.admissions(self._account, droplet))
        for snapshot in self._account.volume_snapshots.values():
            self._files.keep(snapshot.id, snapshot.volume_id)
        scratch = {_scratch_of(name) for name in wanted}
        self._files.keep_only({*self._account.volumes, *self._account.volume_snapshots, *scratch})

    def console(self, droplet: Droplet) -> str:
        """Return what a droplet's console showed."""
        return self._fleet.console(name_of(droplet))

    def close(self) -> None:
        """End all machines, and wait until nothing is left of them."""
        self._fleet.close()

    def _boot(self, name: str, droplet: Droplet) -> None:
        from tests.cloudbox.digitalocean.life.metadata import NAME, PORT, MetadataService
        from tests.cloudbox.machines.machines import MachineSpec

        self._boots[name] = droplet.boots
        disks = self._disks(droplet)
        image = self.images.render(droplet.size.gpus, MI300X if "amd" in droplet.size.model else H100)
        files = {
            "/etc/hosts": f"127.0.0.1 localhost\n{droplet.address} {name} {NAME}\n",
            "/root/.ssh/authorized_keys": "".join(f"{key}\n" for key in droplet.public_keys),
            **image.files,
        }
        early = self._account.settings.early_ssh_seconds
        if early:
            files["/etc/ssh/sshd_config.d/00-early.conf"] = _EARLY_SSHD
            files["/etc/systemd/system/droplet-ready.service"] = _EARLY_UNIT.format(seconds=early)
        spec = MachineSpec(
            name=name,
            address=droplet.address,
            user_data=droplet.user_data.encode(),
            region=droplet.region,
            zone=droplet.region,
            environment={},
            base=droplet.image.base,
            disks=(*disks.values(), *self._scratch(name, droplet)),
            files=files,
            services=(*image.services, *(("droplet-ready.service",) if early else ())),
            hidden=image.hidden,
            private_address=private_address(self._account, droplet),
            interface=_INTERFACE if packets.has_peers(self._account, droplet) else "",
            reaches=(self.endpoint, f"http://{droplet.address}:{PORT}"),
        )
        self._fleet.boot(spec, MetadataService(droplet), set(disks), self._powered_off)

    def _disks(self, droplet: Droplet) -> dict[str, tuple[str, str]]:
        volumes = [self._account.volumes[volume_id] for volume_id in droplet.volume_ids]
        found = {}
        for volume in volumes:
            file = self._files.file(volume.id, volume.size_gigabytes, source=volume.snapshot_id)
            found[volume.id] = (str(file), f"scsi-0DO_Volume_{volume.name}")
        return found

    def _scratch(self, name: str, droplet: Droplet) -> tuple[tuple[str, str], ...]:
        """Return the file and the path of a GPU droplet's own blank disk, if any. fact: do-scratch-disk."""
        gib = self.images.local_disk_gib if droplet.size.gpus else 0
        return ((str(self._files.file(_scratch_of(name), gib)), "/dev/nvme0n1"),) if gib else ()

    def _powered_off(self, name: str) -> None:
        for droplet in self._account.present():
            if name_of(droplet) == name:
                droplet.powered = False
        self.settle()


def _scratch_of(name: str) -> str:
    return f"scratch-{name}"


def name_of(droplet: Droplet) -> str:
    """Return the name of a droplet's machine."""
    return f"droplet-{droplet.id}"
