"""Droplets that boot: real machines with systemd, cloud-init and sshd."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.life.metadata import URL
from tests.cloudbox.digitalocean.orders import create, create_volume
from tests.cloudbox.machines.lab import AWAIT_CLOUD_INIT, Keys, traces
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.support.waiting import wait_until

_DISK = "/dev/disk/by-id/scsi-0DO_Volume_data"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def nothing_left(do_box_process: DigitalOceanBox) -> Iterator[None]:
    """All that these tests booted is gone in the end."""
    yield
    do_box_process.reset()
    wait_until(lambda: not traces(do_box_process.ca_file.parent / "machines"))


def boot(do: DigitalOceanBox, keys: Keys, *, volumes: tuple[str, ...] = (), **more: object) -> Droplet:
    """Create a droplet, and wait until cloud-init has done all of its user-data."""
    number = create(do, user_data=keys.user_data(**more).decode(), volumes=list(volumes))
    (droplet,) = (one for one in do.droplets() if one.id == number)
    await_answer(do, keys, droplet, "up")
    keys.ssh(droplet.address, AWAIT_CLOUD_INIT)
    return droplet


def await_answer(do: DigitalOceanBox, keys: Keys, droplet: Droplet, answer: str) -> None:
    try:
        wait_until(lambda: keys.ssh(droplet.address, "echo up", check=False) == answer)
    except AssertionError as err:
        err.add_note(do.console(droplet))
        raise


def status(do: DigitalOceanBox, droplet: Droplet) -> str:
    shown = do.client().droplets.get(droplet.id)
    return str(shown["droplet"]["status"]) if "droplet" in shown else str(shown["id"])


def test_a_droplet_boots_with_its_user_data_and_knows_who_it_is(do_box: DigitalOceanBox, keys: Keys) -> None:
    """Its user-data ran, its metadata says its id, and its deletion ends the machine."""
    droplet = boot(do_box, keys, runcmd=["echo ran > /opt/mark"])
    assert keys.ssh(droplet.address, "cat /opt/mark") == "ran"
    told = json.loads(keys.ssh(droplet.address, f"curl -fsS {URL}/metadata/v1.json"))
    assert (told["id"], told["region"], told["user-data"]) == (str(droplet.id), "tor1", droplet.user_data)
    paths = ["id", "region", "interfaces/public/0/ipv4/address"]
    asked = " ".join(f"{URL}/metadata/v1/{path}" for path in paths)
    answers = keys.ssh(droplet.address, f"for url in {asked}; do curl -fsS $url; echo; done").split()
    assert answers == [str(droplet.id), "tor1", droplet.address]
    assert keys.ssh(droplet.address, f"curl -fsS {URL}/metadata/v1/none || echo none", check=False).endswith("none")
    do_box.client().droplets.destroy(droplet.id)
    wait_until(lambda: not traces(do_box.ca_file.parent / "machines"))
    assert not do_box.meter.billing()


def test_a_droplet_that_powers_itself_off_is_off_and_bills(do_box: DigitalOceanBox, keys: Keys) -> None:
    """Unlike AWS's instances it is still there: only a deletion ends it. Switched on, it boots again."""
    droplet = boot(do_box, keys)
    keys.ssh(droplet.address, "sudo systemctl poweroff", check=False)
    wait_until(lambda: status(do_box, droplet) == "off")
    assert [bill.id for bill in do_box.meter.billing()] == [str(droplet.id)]
    do_box.client().droplet_actions.post(droplet.id, {"type": "power_on"})
    await_answer(do_box, keys, droplet, "up")
    assert status(do_box, droplet) == "active"


def test_an_early_login_is_asked_to_wait(do_box: DigitalOceanBox, keys: Keys) -> None:
    """Every command seems to succeed, and none is carried out, until the droplet is ready."""
    do_box.settings.early_ssh_seconds = 15
    number = create(do_box, user_data=keys.user_data().decode())
    (droplet,) = do_box.droplets()
    assert droplet.id == number
    await_answer(do_box, keys, droplet, "Please wait while we get your droplet ready...")
    assert "Please wait" in keys.ssh(droplet.address, "touch /tmp/mark; false")
    await_answer(do_box, keys, droplet, "up")
    assert keys.ssh(droplet.address, "test -e /tmp/mark || echo none") == "none"


def test_a_key_of_the_account_lets_root_in(do_box: DigitalOceanBox, keys: Keys) -> None:
    """As DigitalOcean's images do where user-data says nothing of users."""
    key = do_box.client().ssh_keys.create({"name": "laptop", "public_key": keys.public("user")})["ssh_key"]["id"]
    do_box.advance(do_box.settings.key_seconds)
    create(do_box, ssh_keys=[key])
    (droplet,) = do_box.droplets()
    options = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes", "-oLogLevel=ERROR"]
    argv = ["ssh", "-F", "none", *options, "-i", str(keys.folder / "user"), f"root@{droplet.address}", "id -un"]
    wait_until(lambda: subprocess.run(argv, capture_output=True, text=True, check=False).stdout == "root\n")


def test_a_volume_is_a_disk_that_outlives_its_droplet(do_box: DigitalOceanBox, keys: Keys) -> None:
    """Found by its name; one is attached at creation, another later; a snapshot makes a volume with the same data."""
    volume, client = create_volume(do_box), do_box.client()
    first = boot(do_box, keys, volumes=(volume,))
    keys.ssh(first.address, f"sudo sh -ec 'mkfs.ext4 -q {_DISK}; mount {_DISK} /mnt; echo weights > /mnt/file'")
    late = create_volume(do_box, "late")
    client.volume_actions.post_by_id(late, {"type": "attach", "droplet_id": first.id})
    wait_until(lambda: "Volume_late" in keys.ssh(first.address, "ls /dev/disk/by-id"))
    client.droplets.destroy(first.id)
    wait_until(lambda: not traces(do_box.ca_file.parent / "machines"))
    snapshot = client.volume_snapshots.create(volume, {"name": "kept"})["snapshot"]["id"]
    client.volumes.delete(volume)
    again = create_volume(do_box, snapshot_id=snapshot)
    second = boot(do_box, keys, volumes=(again,))
    assert keys.ssh(second.address, f"sudo sh -ec 'mount {_DISK} /mnt; cat /mnt/file'") == "weights"


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path, do_box: DigitalOceanBox) -> None:
    """The box lives in the tests' own process: SIGKILL of it ends its machines too."""
    argv = [sys.executable, "-m", "tests.cloudbox.digitalocean.parent", str(tmp_path)]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "created\n"
        wait_until(lambda: any("systemd-nspawn" in trace for trace in traces(tmp_path / "machines")))
        parent.kill()
    wait_until(lambda: not traces(tmp_path / "machines"))
