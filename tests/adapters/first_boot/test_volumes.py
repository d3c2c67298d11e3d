"""Data volumes are mounted at boot. A volume that isn't blank, or that kedge didn't make, is never formatted."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from tests.adapters.first_boot.scratch import (
    MIB,
    Disks,
    assert_left_alone,
    format_with_a_file,
    needs_root,
    run,
    volume,
)


@needs_root
def test_a_blank_volume_of_ours_is_formatted_and_mounted(disks: Disks) -> None:
    """Owned by the user, empty, where the data belongs, and with its UUID in fstab."""
    disks.attach(disks.make("new"))
    shutil.chown(disks.root / "data", "nobody")
    code, output = disks.mount(
        volume(ours=True, target="sets/imagenet"),
        then="stat -c '%U %F' volumes/vol0a data/sets; ls -A volumes/vol0a; findmnt -no FSTYPE data/sets/imagenet",
        user="nobody",
    )
    assert code == 0, (disks.folder / "mount.log").read_text()
    assert output.splitlines() == ["nobody directory", "nobody directory", "ext4"]
    assert (disks.root / "data/sets/imagenet").readlink() == disks.root / "volumes/vol0a"
    assert disks.fstab.read_text().startswith("UUID=")
    assert "nofail" in disks.fstab.read_text()
    assert [(phase["phase"], phase["ok"]) for phase in disks.phases()] == [("volume vol0a", True)]


@needs_root
def test_a_later_boot_finds_what_an_earlier_one_has_left(disks: Disks) -> None:
    """The volume is still marked as ours, is mounted unchanged, and has one line in fstab."""
    disks.attach(disks.make("new"))
    assert disks.mount(volume(ours=True), then="echo mine >data/imagenet/file")[0] == 0
    assert disks.mount(volume(ours=True), then="cat data/imagenet/file") == (0, "mine\n")
    assert len(disks.fstab.read_text().splitlines()) == 1


@needs_root
@pytest.mark.parametrize("ours", [True, False])
def test_a_volume_that_holds_data_is_mounted_as_it_is(disks: Disks, ours: bool) -> None:
    """Even if kedge wrongly believes that it has just created it."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    assert disks.mount(volume(ours=ours), then="cat data/imagenet/precious") == (0, "a year's work")


@needs_root
def test_a_volume_from_a_snapshot_is_mounted_and_its_file_system_fills_it(disks: Disks) -> None:
    """The snapshot was of a smaller volume: its files are there, and the file system fills the size that is paid for.

    Growing a mounted file system needs rights that a container doesn't have, so a stand-in records the call.
    """
    image = disks.make("restored")
    format_with_a_file(disks, image)
    with image.open("ab") as file:
        file.truncate(96 * 1024**2)
    disks.attach(image)
    disks.replace_program("resize2fs", f'findmnt -no TARGET "$1" >>{disks.folder}/grown')
    code, output = disks.mount(replace(volume(ours=True), origin=Origin.RESTORED), then="cat data/imagenet/precious")
    assert (code, output) == (0, "a year's work"), (disks.folder / "mount.log").read_text()
    assert (disks.folder / "grown").read_text().split() == [f"{disks.root}/volumes/vol0a"]


@needs_root
def test_only_a_volume_from_a_snapshot_is_made_larger(disks: Disks) -> None:
    """A user's own volume stays as it is. One that kedge has formatted has its full size already."""
    image = disks.make("own")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("resize2fs", f"echo grown >{disks.folder}/grown")
    for ours in (True, False):
        assert disks.mount(volume(ours=ours))[0] == 0
    assert not (disks.folder / "grown").exists()


@needs_root
def test_a_file_system_that_does_not_grow_fails_the_boot(disks: Disks) -> None:
    """Otherwise the disk would be full long before the paid size is used."""
    image = disks.make("restored")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("resize2fs", "exit 1")
    assert disks.mount(replace(volume(ours=True), origin=Origin.RESTORED))[0] == 1
    assert "can't grow to its size" in disks.phases()[-1]["error"]


@needs_root
def test_a_blank_volume_from_a_snapshot_is_never_formatted(disks: Disks) -> None:
    """It should hold data. If it is blank, its user has to find out why."""
    image = disks.make("restored")
    before = image.read_bytes()
    disks.attach(image)
    assert disks.mount(replace(volume(ours=True), origin=Origin.RESTORED))[0] == 1
    assert "formats only what it has just made" in disks.phases()[-1]["error"]
    assert image.read_bytes() == before


@needs_root
def test_a_setuid_program_on_a_volume_makes_nobody_root(disks: Disks) -> None:
    """Another machine may have left one there. Neither this boot nor the next honours its setuid bit."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    plant = "cp /usr/bin/id volumes/vol0a/id && chmod 4755 volumes/vol0a/id"
    try_it = "setpriv --reuid=nobody --clear-groups volumes/vol0a/id -u"
    next_boot = f"umount volumes/vol0a && mount -T {disks.fstab} {disks.root}/volumes/vol0a"
    code, output = disks.mount(volume(ours=False), then=f"{plant}; {try_it}; {next_boot}; {try_it}")
    assert (code, output.split()) == (0, ["65534", "65534"]), output


def test_the_script_is_harmless_if_the_volume_is_mounted_already(disks: Disks) -> None:
    """Its unit runs again when a later step fails."""
    disks.attach(disks.make("new"))
    again = f"sh {disks.folder}/mount.sh && findmnt -no TARGET volumes/vol0a | wc -l"
    code, output = disks.mount(volume(ours=True), then=again)
    assert (code, output.splitlines()[-1]) == (0, "1")


@needs_root
def test_a_blank_volume_that_is_not_ours_is_left_alone(disks: Disks) -> None:
    """Nobody but its owner knows what it is for."""
    image = disks.make("blank")
    disks.attach(image)
    assert_left_alone(disks, image, ours=False, error_text="formats only what it has just made")


@needs_root
def test_a_partition_table_is_left_alone(disks: Disks) -> None:
    """It is no file system, but the disk isn't blank either."""
    image = disks.make("parts")
    done = subprocess.run(["sfdisk", "-q", str(image)], input="label: gpt\n,8M\n", text=True, check=False, timeout=30)
    assert done.returncode == 0
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, error_text="PTTYPE=gpt")


@needs_root
def test_other_formats_than_file_systems_are_left_alone(disks: Disks) -> None:
    """Swap stands for LUKS, LVM and RAID."""
    image = disks.make("swap")
    assert run(["mkswap", str(image)]).returncode == 0
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, error_text="TYPE=swap")


@needs_root
@pytest.mark.parametrize("offset", [0, 1, MIB - 1, 15 * MIB, 16 * MIB - 1])
def test_unknown_bytes_are_left_alone(disks: Disks, offset: int) -> None:
    """One byte that isn't zero is enough, at the beginning or at the end."""
    image = disks.make("raw")
    with image.open("r+b") as file:
        file.seek(offset)
        file.write(b"\x01")
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, error_text="isn't blank or can't be read")


@needs_root
def test_a_file_system_with_a_damaged_beginning_is_left_alone(disks: Disks) -> None:
    """No probe recognizes it any more, but a person may still recover it."""
    image = disks.make("damaged")
    format_with_a_file(disks, image)
    with image.open("r+b") as file:
        file.write(bytes(4096))
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, error_text="isn't blank or can't be read")


@needs_root
def test_a_volume_that_was_mounted_before_is_never_formatted(disks: Disks) -> None:
    """It is still marked as ours after a reboot, and may be so damaged that it looks blank."""
    image = disks.make("new")
    disks.attach(image)
    assert disks.mount(volume(ours=True))[0] == 0
    with image.open("r+b") as file:
        file.write(bytes(16 * MIB))
    disks.replace_program("mkfs.ext4", f"echo formatted >{disks.folder}/formatted")
    assert disks.mount(volume(ours=True))[0] == 1
    assert "not there any more" in disks.phases()[-1]["error"]
    assert not (disks.folder / "formatted").exists()


@needs_root
@pytest.mark.parametrize("code", [1, 2, 4, 8, 127])
def test_a_failed_probe_formats_nothing(disks: Disks, code: int) -> None:
    """The volume holds data, and blkid exits with any code, even with 2, which also means blank."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("blkid", f"exit {code}")
    assert_left_alone(disks, image, ours=True, error_text="is left alone" if code == 2 else f"ended with {code}")


@needs_root
def test_a_disk_that_cannot_be_read_is_not_formatted(disks: Disks) -> None:
    """The real blkid exits with 2 for it, as for a blank disk."""
    image = disks.make("dying")
    device = disks.attach(image)
    os.truncate(image, 0)
    assert run(["blkid", "-p", device]).returncode == 2
    disks.replace_program("mkfs.ext4", f"echo formatted >{disks.folder}/formatted")
    assert disks.mount(volume(ours=True))[0] == 1
    assert "can't be read" in disks.phases()[-1]["error"]
    assert not (disks.folder / "formatted").exists()


@needs_root
def test_a_file_system_that_cannot_be_mounted_is_left_alone(disks: Disks) -> None:
    """Its superblock is there, the rest is gone."""
    image = disks.make("broken")
    format_with_a_file(disks, image)
    with image.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * MIB)
    disks.attach(image)
    disks.replace_program("mkfs.ext4", f"echo formatted >{disks.folder}/formatted")
    assert disks.mount(volume(ours=True))[0] == 1
    assert "can't be mounted" in disks.phases()[-1]["error"]
    assert b"a year's work" in image.read_bytes()
    assert not (disks.folder / "formatted").exists()


@needs_root
def test_a_volume_that_comes_late_is_waited_for(disks: Disks) -> None:
    """It can be attached only when the machine runs."""
    image = disks.make("late")
    timer = threading.Timer(0.5, disks.attach, [image])
    timer.start()
    code, _ = disks.mount(volume(ours=True), wait=20)
    timer.join()
    assert code == 0


@needs_root
def test_a_volume_that_never_comes_fails_the_boot(disks: Disks) -> None:
    """The error names its serial. A disk whose serial only ends the same is another disk."""
    disks.attach(disks.make("other"), serial="vol0abcvol0a")
    code, _ = disks.mount(volume(ours=True))
    assert code == 1
    assert "no volume with serial vol0a" in disks.phases()[-1]["error"]


@needs_root
def test_disks_without_serials_are_found_by_their_device(disks: Disks) -> None:
    """As on machines that are older than Nitro."""
    device = disks.attach(disks.make("xen"), serial="other")
    assert disks.mount(volume(ours=True, device=device), then="findmnt -no FSTYPE volumes/vol0a") == (0, "ext4\n")


@needs_root
def test_one_failed_volume_does_not_stop_another(disks: Disks) -> None:
    """The boot still fails: a command that lacks its data must not start."""
    disks.attach(disks.make("new"), serial="vol0b")
    code, output = disks.mount(
        volume("vol0a", ours=True), volume("vol0b", ours=True, target="other"), then="findmnt -no FSTYPE volumes/vol0b"
    )
    assert (code, output) == (1, "ext4\n")
    assert [phase["ok"] for phase in disks.phases()] == [False, True]


@needs_root
def test_data_in_a_volumes_place_stays(disks: Disks) -> None:
    """An empty folder is replaced; one with files isn't."""
    disks.attach(disks.make("new"))
    present = disks.root / "data" / "imagenet"
    present.mkdir()
    assert disks.mount(volume(ours=True))[0] == 0
    assert present.is_symlink()
    present.unlink()
    present.mkdir()
    (present / "file").touch()
    assert disks.mount(volume(ours=True))[0] == 1
    assert "in the way" in disks.phases()[-1]["error"]
    assert (present / "file").exists()
