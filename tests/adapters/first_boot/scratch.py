"""A scratch folder that stands for a machine's file system, where the scripts of the first boot run.

Only `systemctl` is a stand-in: it records its arguments. Volumes are loop devices in a mount namespace, which ends with
the script.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import BootVolume, DiskNames, Origin
from orchestrator.adapters.host.templates import render
from orchestrator.core.protocol.readiness import parse_ready

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIFETIME = 3600
MIB = 1 << 20
ME = pwd.getpwuid(os.getuid()).pw_name
needs_root = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="loop devices need root on Linux")


class Scratch:
    """A folder that stands for a machine's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "kedge"
        self.state = folder / "state"
        self.units = folder / "units"
        self.by_id = folder / "by-id"
        self.fstab = folder / "fstab"
        self._programs = folder / "programs"
        for path in (self.root / "boot", self.root / "data", self.by_id, self._programs):
            path.mkdir(parents=True)
        self.replace_program("systemctl", f'echo "$*" >>{self.folder}/systemctl.log')

    def replace_program(self, name: str, script: str) -> None:
        """Replace one of the system's programs with a script."""
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def path(self) -> str:
        """PATH for the scripts."""
        return f"{self._programs}:{SYSTEM_PATH}"

    @property
    def systemctl_calls(self) -> list[str]:
        log = self.folder / "systemctl.log"
        return log.read_text().splitlines() if log.exists() else []

    def sh(self, script: str, *, shell: Sequence[str] = ("sh",)) -> subprocess.CompletedProcess[str]:
        path = self.folder / "script.sh"
        path.write_text(script)
        return subprocess.run(
            [*shell, str(path)],
            env={"PATH": self.path, "TZ": "Asia/Kathmandu"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def phases(self) -> list[dict[str, Any]]:
        lines = (self.root / "boot.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def deadline_path(scratch: Scratch) -> Path:
    return scratch.state / "digits-1.deadline"


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env={"PATH": SYSTEM_PATH}, capture_output=True, text=True, timeout=60, check=False)


class Disks(Scratch):
    """Loop devices, found by their serials as on EC2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._attached: list[str] = []

    def make(self, name: str, mib: int = 16) -> Path:
        """Make a blank image."""
        image = self.folder / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(mib * MIB)
        return image

    def attach(self, image: Path, serial: str = "vol0a") -> str:
        done = run(["losetup", "--find", "--show", str(image)])
        assert done.returncode == 0, done.stderr
        device = done.stdout.strip()
        self._attached.append(device)
        (self.by_id / f"nvme-Amazon_Elastic_Block_Store_{serial}").symlink_to(device)
        return device

    def mount(self, *volumes: BootVolume, then: str = "", user: str = ME, wait: int = 0) -> tuple[int, str]:
        """Run the script, then a command in its mount namespace; return the exit code and the command's output."""
        script = render(
            "boot/mount-volumes.sh.j2",
            root=str(self.root),
            user=user,
            by_id=str(self.by_id),
            fstab=str(self.fstab),
            wait=wait,
            disk_model="Amazon_Elastic_Block_Store",
            volumes=volumes,
        )
        (self.folder / "mount.sh").write_text(script)
        around = f"cd {self.root}\nsh {self.folder}/mount.sh >{self.folder}/mount.log 2>&1\necho $?\n{then}\n"
        done = self.sh(around, shell=["unshare", "--mount", "sh"])
        code, _, output = done.stdout.partition("\n")
        return int(code), output + done.stderr

    def add_local(self, image: Path, name: str = "a") -> str:
        """Attach a disk that came with the machine, under two names, as udev names it."""
        device = self.attach(image, serial=f"local-{name}")
        for link in (f"local-{name}", f"local-{name}-ns-1"):
            (self.by_id / link).symlink_to(device)
        return device

    def boot_local(self, *, then: str = "", mounted_by: str = "", before: str = "", wait: int = 0) -> str:
        """Run the script that puts data on a local disk, then a command in its mount namespace; return their output.

        The root disk is small, so that a disk of some MiB has more room.
        """
        names = DiskNames(
            volume_model="x", local=f"{self.by_id}/local-*", mounted_by=mounted_by, mounted_at=f"{self.folder}/image"
        )
        script = render("boot/scratch.sh.j2", root=str(self.root), user=ME, names=names, wait=wait)
        (self.folder / "scratch.sh").write_text(script)
        (self.folder / "image").mkdir(exist_ok=True)
        small = f"mount -t tmpfs -o size=4m none {self.root} && mkdir {self.root}/data"
        run_it = f"cd {self.root}\n{before}\nsh {self.folder}/scratch.sh"
        done = self.sh(f"{small}\n{run_it}\ncd {self.root}\n{then}\n", shell=["unshare", "--mount", "sh"])
        return done.stdout + done.stderr

    def detach(self) -> None:
        for device in self._attached:
            run(["losetup", "--detach", device])


def volume(serial: str = "vol0a", *, ours: bool, target: str = "imagenet", device: str = "") -> BootVolume:
    origin = Origin.MADE if ours else Origin.FOUND
    return BootVolume(serial=serial, target=target, origin=origin, device=device)


def format_with_a_file(disks: Disks, image: Path) -> None:
    source = disks.folder / "source"
    source.mkdir(exist_ok=True)
    (source / "precious").write_text("a year's work")
    done = run(["mkfs.ext4", "-q", "-d", str(source), str(image)])
    assert done.returncode == 0, done.stderr


def assert_left_alone(disks: Disks, image: Path, *, ours: bool, error_text: str) -> None:
    """Assert that the boot fails, says why, and leaves every byte of the volume unchanged."""
    before = image.read_bytes()
    code, _ = disks.mount(volume(ours=ours))
    assert code == 1
    assert image.read_bytes() == before
    ready = parse_ready((disks.root / "ready").read_bytes())
    assert not ready.ok
    assert error_text in ready.phases[-1].error
    assert not disks.fstab.exists()
    assert not (disks.root / "data" / "imagenet").exists()


def run_unready_check(scratch: Scratch, *answers: int, user: str = ME) -> subprocess.CompletedProcess[str]:
    """Run what the timer runs. `systemctl is-active` exits with each of `answers` in turn, and then with 3."""
    left = scratch.folder / "answers"
    left.write_text("".join(f"{answer}\n" for answer in answers))
    look = f"status=$(head -n 1 {left}); sed -i 1d {left}; exit ${{status:-3}}"
    log = f'echo "$*" >>{scratch.folder}/systemctl.log'
    scratch.replace_program("systemctl", f"case $* in *is-active*) {look} ;; esac\n{log}")
    scratch.replace_program("sleep", ":")
    script = render(
        "boot/unready.sh.j2", root=str(scratch.root), user=user, unready_seconds=600, end_unit="kedge-end.service"
    )
    return scratch.sh(script)


def arm(scratch: Scratch, shell: str = "sh") -> tuple[int, int]:
    """Run the deadline script once; return the stored deadline, and the timer's longest delay in seconds."""
    script = render(
        "boot/deadline.sh.j2",
        deadline_file=str(deadline_path(scratch)),
        arm_file=str(scratch.state / "arm.sh"),
        end_file=str(scratch.state / "end.sh"),
        end="echo $0 ended 'by\\nme'",
        lifetime=LIFETIME,
        units=str(scratch.units),
    )
    done = scratch.sh(script, shell=[shell])
    assert done.returncode == 0, done.stderr
    timer = timer_of(scratch)
    assert timer["AccuracySec"] == "1s"
    return instant(timer["OnCalendar"]), int(timer["OnActiveSec"].removesuffix("s"))


def timer_of(scratch: Scratch) -> dict[str, str]:
    lines = (scratch.units / "kedge-deadline.timer").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def instant(calendar: str) -> int:
    """Return the Unix seconds of a calendar expression, as `date` reads it."""
    done = subprocess.run(["date", "-d", calendar, "+%s"], capture_output=True, text=True, check=True, timeout=10)
    return int(done.stdout)
