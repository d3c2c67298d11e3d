"""Connects instances of the API to running machines."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.agent.standin import H100
from tests.cloudbox.lambdacloud.account import Account
from tests.cloudbox.lambdacloud.state import Instance
from tests.cloudbox.machines.fleet import Fleet
from tests.cloudbox.machines.gpus import Images

# The image's own user, and its sshd with its own host key, which runs before user-data is applied.
# fact: lambda-image-user; fact: lambda-image-host-key-first
_PREPARE = """\
#!/bin/sh -e
id ubuntu || useradd --create-home --password '*' --shell /bin/bash ubuntu
install -d -m 700 -o ubuntu -g ubuntu /home/ubuntu/.ssh
install -m 600 -o ubuntu -g ubuntu /usr/share/lambda/authorized_keys /home/ubuntu/.ssh/authorized_keys
install -m 440 /usr/share/lambda/sudoers /etc/sudoers.d/90-ubuntu
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f /usr/share/lambda/host_key
"""
# While systemd boots, PAM lets only root in.
_EARLY_UNIT = """\
[Unit]
Description=the image's own sshd
DefaultDependencies=no
After=systemd-remount-fs.service systemd-tmpfiles-setup.service
Before=cloud-init-local.service

[Service]
Type=exec
ExecStartPre=/usr/share/lambda/prepare
ExecStart=/usr/sbin/sshd -D -o HostKey=/usr/share/lambda/host_key -o PidFile=none -o UsePAM=no
"""
# cloud-init begins later, and then the usual sshd takes over.
_LATER = "[Service]\nExecStartPre=/bin/sleep {seconds:g}\n"
_HAND_OVER = "[Service]\nExecStartPre=/bin/systemctl stop lambda-sshd.service\n"
# Machines share the host's network, so this stand-in for nft only records the rules. tests/adapters/test_close_ssh.py
# tests their effect in network namespaces.
_NFT = """\
#!/bin/sh
echo "at $(cut -d' ' -f1 /proc/uptime)" >>/var/log/nft.rules
exec cat >>/var/log/nft.rules
"""
_UNITS = "/etc/systemd/system"


class Hosting:
    """Boots and ends machines as their instances require, and marks an instance whose machine powers itself off.

    `lock` is the box's lock, which callers hold when they change instances.
    """

    def __init__(self, account: Account, folder: Path, lock: threading.RLock) -> None:
        self._account = account
        self._fleet: Fleet[_NoMetadata] = Fleet(folder / "machines", lock)
        self._boots: dict[str, int] = {}
        self.images = Images()

    def settle(self) -> None:
        """Boot and end machines as the state of the instances requires."""
        wanted = {name_of(one): one for one in self._account.instances.values() if self._runs(one)}
        for link in self._fleet.links():
            instance = wanted.get(link.name)
            if instance is None or instance.boots != self._boots[link.name]:
                self._fleet.unplug(link.name)
        for name, instance in wanted.items():
            if not self._fleet.find(name):
                self._boot(name, instance)

    def console(self, instance: Instance) -> str:
        """Return the console output of an instance's machine."""
        return self._fleet.console(name_of(instance))

    def close(self) -> None:
        """End all machines, and wait until nothing is left of them."""
        self._fleet.close()

    def _runs(self, instance: Instance) -> bool:
        status = self._account.status(instance)
        return instance.powered and not instance.is_foreign and status not in ("preempted", "terminating", "terminated")

    def _boot(self, name: str, instance: Instance) -> None:
        from tests.cloudbox.machines.machines import MachineSpec

        self._boots[name] = instance.boots
        image = self.images.render(instance.type.gpus, H100)
        files = {
            "/usr/share/lambda/prepare": _PREPARE,
            "/usr/share/lambda/authorized_keys": f"{instance.key.public_key}\n",
            "/usr/share/lambda/sudoers": "ubuntu ALL=(ALL) NOPASSWD:ALL\n",
            "/usr/sbin/nft": _NFT,
            f"{_UNITS}/lambda-sshd.service": _EARLY_UNIT,
            f"{_UNITS}/ssh.service.d/early.conf": _HAND_OVER,
            f"{_UNITS}/cloud-init-local.service.d/late.conf": _LATER.format(
                seconds=self._account.settings.early_ssh_seconds
            ),
            **image.files,
        }
        spec = MachineSpec(
            name=name,
            address=instance.address,
            user_data=instance.user_data.encode(),
            region=instance.region,
            zone=instance.region,
            environment={},
            files=files,
            services=("lambda-sshd.service", *image.services),
            hidden=image.hidden,
        )
        self._fleet.boot(spec, _NoMetadata(), set(), self._powered_off)

    def _powered_off(self, name: str) -> None:
        for one in self._account.instances.values():
            if name_of(one) == name:
                one.powered = False
        self.settle()


class _NoMetadata:
    """Lambda documents no metadata service."""

    def close(self) -> None:
        """Do nothing."""


def name_of(instance: Instance) -> str:
    """Return the name of an instance's machine."""
    return f"lambda-{instance.id[:16]}"
