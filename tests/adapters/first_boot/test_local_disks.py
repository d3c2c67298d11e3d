"""Local disks of a machine hold its data if they are blank."""

from __future__ import annotations

import os
import subprocess

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import DiskNames
from orchestrator.adapters.host.templates import render
from tests.adapters.first_boot.scratch import (
    ME,
    MIB,
    Disks,
    Scratch,
    format_with_a_file,
    needs_root,
)


def without_mount_unit(disks: Disks) -> None:
    """Simulate an image that has no unit that mounts disks."""
    disks.replace_program("systemctl", "exit 1")


@needs_root
def test_a_local_disk_that_is_blank_holds_the_data(disks: Disks) -> None:
    """The largest one is formatted, becomes the data folder, and belongs to the user.

    fact: do-scratch-disk
    """
    without_mount_unit(disks)
    disks.add_local(disks.make("small", mib=16), "a")
    disks.add_local(disks.make("large", mib=64), "b")
    look = "findmnt -no FSTYPE,SIZE data; stat -c '%U %a' data; touch data/set; ls scratch/kedge-data; cat boot.jsonl"
    output = disks.boot_local(then=look)
    assert f"data is on {disks.root}/scratch" in output
    assert f"{ME} 775" in output
    assert "\nset\n" in output
    (size,) = [line.split()[1] for line in output.splitlines() if line.startswith("ext4")]
    assert float(size.rstrip("M")) > 40
    assert '"phase": "scratch"' in output
    assert '"ok": true' in output


@needs_root
def test_a_reboot_finds_the_data_where_it_was(disks: Disks) -> None:
    """Its label identifies the disk, which isn't formatted again. By then it may have less room than the root disk."""
    without_mount_unit(disks)
    disks.add_local(disks.make("disk", mib=64))
    disks.boot_local(then="echo mine >data/set; umount data scratch")
    assert "mine" in disks.boot_local(then="cat data/set")


@needs_root
@pytest.mark.parametrize("other_mib", [64, 128], ids=["as large", "larger"])
def test_a_reboot_takes_the_disk_in_use_before_any_blank_one(disks: Disks, other_mib: int) -> None:
    """Another, blank disk that sorts last by name or size stays blank: names change between boots."""
    without_mount_unit(disks)
    disks.add_local(disks.make("first", mib=64), "a")
    disks.boot_local(then="echo mine >data/set; umount data scratch")
    other = disks.make("other", mib=other_mib)
    disks.add_local(other, "b")
    assert "mine" in disks.boot_local(then="cat data/set")
    assert other.read_bytes() == bytes(other_mib * MIB)


@needs_root
@pytest.mark.parametrize("what", ["a file system", "not zero", "partitions"])
def test_a_local_disk_that_holds_something_is_left_alone(disks: Disks, what: str) -> None:
    """Not a byte changes; the data stays on the root disk, and the boot continues."""
    without_mount_unit(disks)
    image = disks.make("disk", mib=64)
    if what == "a file system":
        format_with_a_file(disks, image)
    elif what == "not zero":
        with image.open("r+b") as content:
            content.seek(-100, os.SEEK_END)
            content.write(b"x")
    else:
        done = subprocess.run(["sfdisk", "-q", str(image)], input=b"type=83\n", capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    before = image.read_bytes()
    disks.add_local(image)
    output = disks.boot_local(then="mountpoint data; cat boot.jsonl")
    assert "data stays on the root disk: none of" in output
    assert "data is not a mountpoint" in output
    assert '"ok": true' in output
    assert image.read_bytes() == before


@needs_root
def test_disks_that_the_image_mounts_are_awaited_and_never_formatted(disks: Disks) -> None:
    """A Deep Learning AMI mounts them after boot (fact: dlami-nvme). If it doesn't in time, nothing is touched."""
    disks.replace_program("systemctl", "exit 0")
    image = disks.make("disk", mib=64)
    disks.add_local(image)
    late = f"(sleep 1; mount -t tmpfs -o size=32m none {disks.folder}/image) &"
    output = disks.boot_local(
        mounted_by="image.service", before=late, wait=20, then="touch data/set; ls ../image/kedge-data"
    )
    assert f"data is on {disks.folder}/image" in output
    assert output.rstrip().endswith("set")
    assert "the image didn't mount" in disks.boot_local(mounted_by="image.service")
    assert image.read_bytes() == bytes(64 * MIB)


@needs_root
def test_root_follows_no_link_on_a_world_writable_disk(disks: Disks) -> None:
    """If the image mounts a disk like that, the job may replace the data folder with a link before a reboot."""
    disks.replace_program("systemctl", "exit 0")
    disks.add_local(disks.make("disk", mib=64))
    roots = disks.folder / "etc"
    roots.mkdir(mode=0o755)
    planted = f"mount -t tmpfs -o size=32m none {disks.folder}/image; ln -s {roots} {disks.folder}/image/kedge-data"
    output = disks.boot_local(mounted_by="image.service", before=planted, then="mountpoint data")
    assert (roots.stat().st_mode & 0o777, "data is not a mountpoint" in output) == (0o755, True), output
    assert "data stays on the root disk" in output


@needs_root
@pytest.mark.parametrize(("mib", "before"), [(2, "true"), (64, "touch data/mine")])
def test_data_stays_on_the_root_disk_if_that_is_better(disks: Disks, mib: int, before: str) -> None:
    """If the root disk has more room, or already holds data, which a mount would hide."""
    without_mount_unit(disks)
    disks.add_local(disks.make("disk", mib=mib))
    output = disks.boot_local(before=before, then="mountpoint data")
    assert "data stays on the root disk" in output
    assert "data is not a mountpoint" in output


def test_a_machine_without_local_disks_keeps_its_data_on_the_root_disk(scratch: Scratch) -> None:
    """The pattern matches nothing; the boot continues."""
    names = DiskNames(volume_model="x", local=f"{scratch.folder}/none-*")
    done = scratch.sh(render("boot/scratch.sh.j2", root=str(scratch.root), user=ME, names=names, wait=0))
    assert (done.returncode, done.stderr) == (0, "")
    assert "there is no local disk" in done.stdout
