"""The machines of the box: real, apart from each other, and gone without a trace."""

from __future__ import annotations

import gzip
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.aws.life.disks import by_id
from tests.cloudbox.machines.lab import AWAIT_CLOUD_INIT, METADATA_URL, Lab, open_lab, traces
from tests.cloudbox.machines.machines import MachineSpec
from tests.cloudbox.nspawn.needs import prepare_machines
from tests.cloudbox.nspawn.order import REPOSITORY
from tests.cloudbox.nspawn.rootfs import find_mirror
from tests.support.preloaded.process import EVERYTHING_ANEW
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    if reason := prepare_machines():
        pytest.skip(reason)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab that must leave nothing behind, whatever its test did."""
    with open_lab(tmp_path) as lab:
        yield lab


@pytest.fixture(scope="module")
def resident(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, MachineSpec]]:
    """A machine that several tests look at, and none changes for the others."""
    with open_lab(tmp_path_factory.mktemp("resident")) as lab:
        yield lab, lab.boot_up(user_data=lab.keys.user_data(runcmd=["env > /var/lib/environment"]))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A blank disk."""
    path = tmp_path / "volume.img"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    return path


def test_a_machine_does_what_its_user_data_says(lab: Lab) -> None:
    """Gzipped user-data makes the user and the pinned host key, writes files and runs commands."""
    user_data = lab.keys.user_data(
        bootcmd=["echo first > /opt/order"],
        write_files=[{"path": "/opt/written", "content": "by write_files", "permissions": "0640"}],
        runcmd=["echo second >> /opt/order", ["touch", "/opt/last"]],
    )
    started = time.monotonic()
    spec = lab.boot(user_data=gzip.compress(user_data))
    lab.await_ssh(spec)
    assert time.monotonic() - started < 60
    assert "status: done" in lab.run(spec, "cloud-init status --wait")
    assert lab.run(spec, "cat /opt/order; ls /opt/last").split() == ["first", "second", "/opt/last"]
    assert lab.run(spec, "sudo cat /opt/written; stat -c %a /opt/written") == "by write_files640"
    assert "running modules:final" in lab.run(spec, "sudo cat /var/log/cloud-init-output.log").replace("'", "")


def test_cloud_inits_stages_do_the_same_in_one_process_and_started_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same modules with the same results, in the same control groups, and a stage that fails is a failed unit."""
    user_data = lab.keys.user_data(
        bootcmd=["cat /proc/self/cgroup >/opt/init"],
        write_files=[{"path": "/opt/text", "content": "plain: 'quoted' \"twice\"\\n\\ttab: ünï\n"}],
        runcmd=["cat /proc/self/cgroup >/opt/final; env | cut -d= -f1 | sort >/opt/names; exit 3"],
    )
    forked = lab.boot(user_data=user_data)
    monkeypatch.setenv(EVERYTHING_ANEW, "1")
    anew = lab.boot(user_data=user_data)
    looks = (
        "sed -n 's/.*finish: //p' /var/log/cloud-init.log",
        "cat /run/cloud-init/result.json /var/lib/cloud/instance/cloud-config.txt | grep -v instance-id",
        "systemctl is-failed cloud-init-local cloud-init cloud-config cloud-final",
        "getent passwd | cut -d: -f1; ls /home /etc/ssh /etc/sudoers.d",
        "cat /opt/text",
        "sed 's/.*:.*kedge-cloudbox[^/]*//' /opt/init /opt/final",
        "cat /opt/names",
    )
    for spec in (forked, anew):
        lab.await_ssh(spec)
        lab.run(spec, f"{AWAIT_CLOUD_INIT}; systemctl is-system-running --wait || true")
    for look in looks:
        one, other = (
            lab.keys.ssh(spec.address, f"sudo sh -c {shlex.quote(look)}", check=False) for spec in (forked, anew)
        )
        assert one
        assert one == other, look


def test_a_machine_finds_its_metadata_service_in_every_environment(resident: tuple[Lab, MachineSpec]) -> None:
    """Logins, services and what user-data runs all have the variable that SDKs read."""
    lab, spec = resident
    assignment = f"AWS_EC2_METADATA_SERVICE_ENDPOINT={METADATA_URL}"
    service = "sudo systemd-run --wait --pipe --quiet env"
    for command in ("env", "sudo env", "sudo -i env", service, "cat /var/lib/environment"):
        assert assignment in lab.run(spec, command).splitlines(), command


def test_a_machine_is_apart_from_the_host(resident: tuple[Lab, MachineSpec]) -> None:
    """It sees neither the host's processes nor its homes nor this checkout, and writes only to itself."""
    lab, spec = resident
    assert lab.run(spec, "cat /proc/1/comm") == "systemd"
    assert "pytest" not in lab.run(spec, "ps -e -o args=")
    assert lab.run(spec, f"test -e {REPOSITORY} || echo hidden") == "hidden"
    assert lab.run(spec, "ls /home /opt").split() == ["/home:", "kedge", "/opt:", "pytorch"]
    folders = ["/run", "/tmp", "/dev/shm", "/opt", "/root", "/home", "/var/lib", "/usr/local"]
    lab.run(spec, f"for folder in {' '.join(folders)}; do sudo touch $folder/{spec.name}; done")
    assert not [folder for folder in folders if Path(folder, spec.name).exists()]


def test_a_host_machine_has_a_python_with_packages_like_an_image_for_training(
    resident: tuple[Lab, MachineSpec],
) -> None:
    """The tests' own, where an image has its own with torch: the user can run it, and cannot change it."""
    lab, spec = resident
    assert lab.run(spec, '/opt/pytorch/bin/python -c "import sys, yaml; print(sys.prefix)"') == "/opt/pytorch"
    assert lab.run(spec, "sudo touch /opt/pytorch/mark 2>/dev/null || echo refused") == "refused"


def test_poweroff_ends_a_machine_as_powered_off(lab: Lab) -> None:
    """Its owner hears that it ended by itself, once, and its address is free again."""
    spec = lab.boot_up()
    lab.keys.ssh(spec.address, "sudo systemctl poweroff", check=False)
    assert lab.exits.get(timeout=60) == (spec.name, True)
    assert not traces(lab.machines.folder)
    lab.machines.end(spec.name)
    assert lab.exits.empty()


def test_a_timer_that_is_due_powers_a_machine_off(lab: Lab) -> None:
    """The deadline of user-data needs nobody from outside, though it is armed before the rest of the boot."""
    # With its default dependencies it would wait for the very boot stage that waits for this command.
    settings = "--timer-property=AccuracySec=100ms --timer-property=DefaultDependencies=no"
    deadline = f"systemd-run --no-block --on-active=1s {settings} systemctl poweroff"
    spec = lab.boot(user_data=lab.keys.user_data(bootcmd=[deadline]))
    assert lab.exits.get(timeout=60) == (spec.name, True)


def test_a_machine_that_reboots_comes_back_as_itself(lab: Lab) -> None:
    """Its files are there, its first boot's commands don't run again, and it has not ended."""
    spec = lab.boot_up(user_data=lab.keys.user_data(runcmd=["echo booted >> /opt/boots"]))
    lab.run(spec, "touch ~/before")
    before = lab.run(spec, "cat /proc/sys/kernel/random/boot_id")
    lab.keys.ssh(spec.address, "sudo systemctl reboot", check=False)
    wait_until(
        lambda: lab.keys.ssh(spec.address, "cat /proc/sys/kernel/random/boot_id", check=False) not in {"", before}
    )
    assert lab.run(spec, f"{AWAIT_CLOUD_INIT}; ls ~/before; cat /opt/boots").split()[1:] == ["booted"]
    assert lab.exits.empty()


def test_pulling_the_plug_of_one_machine_leaves_the_other_alone(lab: Lab) -> None:
    """Two at once have their own services of the same name, and only the ended one is over."""
    first, second = lab.boot(), lab.boot()
    for spec in (first, second):
        lab.await_ssh(spec)
        lab.run(spec, f"{AWAIT_CLOUD_INIT}; sudo systemd-run --quiet --unit=train sleep 600")
    lab.machines.end(first.name)
    assert lab.exits.get(timeout=60) == (first.name, False)
    assert lab.run(second, "systemctl is-active train") == "active"
    assert lab.run(second, "systemctl is-system-running --wait") == "running"


def test_services_restart_on_failure_and_tmux_outlives_its_login(resident: tuple[Lab, MachineSpec]) -> None:
    """What keeps a training command alive on a real machine does here too."""
    lab, spec = resident
    fail_once = "test -e /tmp/failed || { touch /tmp/failed; exit 1; }; exec sleep 600"
    lab.run(spec, f"sudo systemd-run --quiet --unit=train -p Restart=on-failure -p RestartSec=0 sh -c '{fail_once}'")
    look = "systemctl show --property=NRestarts,ActiveState train"
    wait_until(lambda: set(lab.run(spec, look).split()) == {"NRestarts=1", "ActiveState=active"})
    lab.run(spec, "tmux new-session -d -s train sleep 600")
    assert lab.run(spec, "tmux has-session -t train && echo there") == "there"


def test_a_bare_debian_has_nothing_of_ours(lab: Lab) -> None:
    """It boots like the other, without the programs that a laptop or a training image has."""
    spec = lab.boot_up(base="bare", user_data=lab.keys.user_data(runcmd=["echo done > /opt/done"]))
    assert lab.run(spec, "cat /opt/done") == "done"
    for program in ("zstd", "rsync", "tmux", "curl", "wget", "git", "pip"):
        assert lab.run(spec, f"command -v {program} || echo none") == "none"
    assert lab.run(spec, "ls /opt") == "done"
    assert lab.run(spec, "python3 -c 'import sys; print(sys.version_info >= (3, 10))'") == "True"


def test_a_disk_is_found_by_its_name_and_keeps_its_data_for_the_next_machine(lab: Lab, image: Path) -> None:
    """A volume attached to a running machine is formatted there, and the next machine mounts it by UUID."""
    first = lab.boot_up()
    lab.machines.attach(first.name, str(image), by_id("vol-0abc"))
    device = f"/dev/disk/by-id/{by_id('vol-0abc')}"
    format_and_write = "mkfs.ext4 -q $D && mount $D /mnt && echo weights > /mnt/file && blkid -o value -s UUID $D"
    uuid = lab.run(first, f"sudo sh -ec 'D={device}; {format_and_write}'")
    lab.machines.end(first.name)
    lab.exits.get(timeout=60)
    second = lab.boot_up(disks=((str(image), by_id("vol-0abc")),))
    assert lab.run(second, f"sudo sh -ec 'mount UUID={uuid} /mnt; cat /mnt/file'") == "weights"
    assert lab.run(second, "findmnt -n -o SOURCE /mnt") == lab.run(second, f"readlink -f {device}")


def test_a_disk_that_is_not_there_is_refused(resident: tuple[Lab, MachineSpec], tmp_path: Path) -> None:
    """The caller hears why, and the machine runs on."""
    lab, spec = resident
    with pytest.raises(OSError, match="No such file"):
        lab.machines.attach(spec.name, str(tmp_path / "none.img"), "none")
    assert lab.run(spec, "echo up") == "up"


@pytest.mark.parametrize("when", ["at once", "while it boots", "when it is up"])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, image: Path, when: str) -> None:
    """SIGKILL of whoever booted a machine ends it: no process, mount, loop device, control group or file stays."""
    folder = tmp_path / "machines"
    argv = [sys.executable, "-m", "tests.cloudbox.machines.parent", str(folder), str(image)]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        address = parent.stdout.readline().strip()
        if when == "while it boots":
            wait_until(lambda: any("systemd-nspawn" in trace for trace in traces(folder)))
        elif when == "when it is up":
            wait_until(lambda: _accepts(address))
        parent.kill()
    wait_until(lambda: not traces(folder, image))


def test_a_killed_keeper_takes_its_machine_with_it(lab: Lab) -> None:
    """Even the process that cleans up may be killed: the machine dies, and its owner hears of it and cleans up."""
    spec = lab.boot_up()
    keeper = int(subprocess.check_output(["pgrep", "--full", f"tests.cloudbox.nspawn.keeper .*{spec.name}"]).split()[0])
    os.kill(keeper, signal.SIGKILL)
    assert lab.exits.get(timeout=60) == (spec.name, False)
    wait_until(lambda: not traces(lab.machines.folder))
    assert not _accepts(spec.address)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list", "# old\ndeb [signed-by=/x] http://mirror.example/debian bookworm main\n"),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm\n"),
    ],
)
def test_the_bare_debian_comes_from_where_this_computer_installs_from(tmp_path: Path, name: str, text: str) -> None:
    """Both formats of apt's sources are read; another distribution's archive is not taken for Debian's."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/other.list").write_text("deb https://packages.example/apt stable main\n")
    assert find_mirror(tmp_path) == "http://deb.debian.org/debian"
    (tmp_path / name).write_text(text)
    assert find_mirror(tmp_path).startswith("http://mirror.example/debian")


def _accepts(address: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, 22)) == 0
