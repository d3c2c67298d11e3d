"""What a machine's first boot runs, run here in a scratch folder: the deadline, torch, machine.json, volumes.

Only `systemctl` is a stand-in, which writes down what it is asked. Volumes are loop devices, mounted in a mount
namespace that ends with the script.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.boot import BootVolume, DiskNames, Origin
from orchestrator.adapters.templates import render
from orchestrator.core.report import parse_ready

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
        """Put another program in the place of one of the system's."""
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return f"{self._programs}:{SYSTEM_PATH}"

    @property
    def asked_of_systemctl(self) -> list[str]:
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


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


# The deadline.


def arm(scratch: Scratch, shell: str = "sh") -> tuple[int, int]:
    """Boot once; return the deadline that is kept, and the seconds after which the timer elapses in any case."""
    script = render(
        "boot/deadline.sh.j2",
        deadline_file=str(kept(scratch)),
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


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_first_boot_fixes_an_absolute_deadline(scratch: Scratch, shell: str) -> None:
    """Its timer is started by that boot, and enabled for those that come."""
    before = int(time.time())
    deadline, left = arm(scratch, shell)
    assert before + LIFETIME <= deadline <= time.time() + LIFETIME
    assert left == LIFETIME
    assert scratch.asked_of_systemctl == [
        "daemon-reload",
        "--no-block restart kedge-deadline.timer",
        "--no-reload enable kedge-deadline.timer",
    ]


def test_a_reboot_does_not_extend_the_deadline(scratch: Scratch) -> None:
    """After ten minutes it is ten minutes nearer."""
    deadline, _ = arm(scratch)
    earlier = deadline - 600
    kept(scratch).write_text(f"{earlier}\n")
    assert arm(scratch)[0] == earlier
    assert arm(scratch)[0] == earlier
    assert LIFETIME - 660 < arm(scratch)[1] <= LIFETIME - 600


def test_a_deadline_that_has_passed_ends_the_machine_at_once(scratch: Scratch) -> None:
    """It may have been off when its time came: an instant in the past alone would never elapse."""
    deadline, _ = arm(scratch)
    kept(scratch).write_text(f"{deadline - 10 * LIFETIME}\n")
    assert arm(scratch)[1] == 1


def test_a_clock_that_was_ahead_at_first_boot_does_not_delay_the_end(scratch: Scratch) -> None:
    """The lifetime is counted as well."""
    deadline, _ = arm(scratch)
    kept(scratch).write_text(f"{deadline + 100 * LIFETIME}\n")
    assert arm(scratch)[1] == LIFETIME


@pytest.mark.parametrize("content", ["", "soon", "12\n13"])
def test_a_damaged_record_is_made_anew(scratch: Scratch, content: str) -> None:
    """A deadline that is too late is better than none."""
    arm(scratch)
    kept(scratch).write_text(content)
    deadline, _ = arm(scratch)
    assert time.time() < deadline <= time.time() + LIFETIME
    assert kept(scratch).read_text() == f"{deadline}\n"


def test_the_timer_is_armed_where_nothing_can_be_remembered(scratch: Scratch) -> None:
    """Whatever fails, the rest is still tried."""
    scratch.state.write_text("a file in the folder's place")
    deadline, left = arm(scratch)
    assert (deadline > time.time(), left) == (True, LIFETIME)
    assert "--no-block restart kedge-deadline.timer" in scratch.asked_of_systemctl


def test_systemd_finds_nothing_to_say_about_the_deadlines_units(scratch: Scratch) -> None:
    """And reads the same instant from the timer as was written down."""
    deadline, _ = arm(scratch)
    units = [str(scratch.units / f"kedge-deadline.{kind}") for kind in ("service", "timer")]
    done = run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run(["systemd-analyze", "calendar", timer_of(scratch)["OnCalendar"]])
    normal = next(line for line in done.stdout.splitlines() if "Normalized form:" in line)
    assert instant(normal.split(": ")[1]) == deadline


def kept(scratch: Scratch) -> Path:
    return scratch.state / "digits-1.deadline"


# The image's torch.


def make_environment(folder: Path, *, torch: bool) -> Path:
    """Make a virtual environment; a torch in it that is imported would fail."""
    venv.create(folder, symlinks=True)
    if torch:
        package = next(folder.glob("lib/python*/site-packages")) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemError('imported')")
    return folder / "bin"


def find_torch(scratch: Scratch) -> str:
    done = scratch.sh(render("boot/find-torch.sh.j2", opt=str(scratch.folder / "opt")))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("place", ["opt/pytorch", "opt/conda/envs/pytorch", "opt/miniforge3", "opt/venv"])
def test_the_torch_of_the_image_is_found(scratch: Scratch, place: str) -> None:
    """In each of the places where images have it, without importing it.

    fact: aws-dlami-python
    """
    expected = make_environment(scratch.folder / place, torch=True)
    assert find_torch(scratch) == str(expected)


def test_an_environment_without_torch_is_passed_over(scratch: Scratch) -> None:
    """A conda image has others too, and they come first by name."""
    make_environment(scratch.folder / "opt/conda/envs/amazonei", torch=False)
    expected = make_environment(scratch.folder / "opt/conda/envs/zoo", torch=True)
    assert find_torch(scratch) == str(expected)


def test_a_python_that_does_not_start_is_passed_over(scratch: Scratch) -> None:
    """And a folder whose name would need quoting in JSON is."""
    broken = scratch.folder / "opt/pytorch/bin/python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    make_environment(scratch.folder / 'opt/conda/envs/a"b', torch=True)
    assert find_torch(scratch) == ""


def test_without_torch_the_path_stays_as_it_is(scratch: Scratch) -> None:
    """The system's python3 is on it already."""
    assert find_torch(scratch) == ""


# What is filled in at first boot.


def prepare(
    scratch: Scratch, *, form: Mapping[str, Any], torch: str = "", user: str = ME
) -> subprocess.CompletedProcess[str]:
    (scratch.root / "boot" / "machine.json").write_text(json.dumps(form))
    (scratch.root / "boot" / "find-torch.sh").write_text(f"echo '{torch}'\n" if torch else "")
    script = render(
        "boot/prepare.sh.j2",
        root=str(scratch.root),
        user=user,
        deadline_file=str(kept(scratch)),
        lifetime=LIFETIME,
        margin=60,
    )
    return scratch.sh(script)


FORM = {"machine": "digits-1", "created": "@created@", "deadline": "@deadline@", "path": ["@torch@"]}


@needs_root
@pytest.mark.parametrize(
    ("path", "torch", "expected"),
    [
        ([], "", []),
        ([], "/opt/pytorch/bin", ["/opt/pytorch/bin"]),
        (["/opt/x"], "", ["/opt/x"]),
        (["/opt/x"], "/opt/pytorch/bin", ["/opt/pytorch/bin", "/opt/x"]),
    ],
)
def test_the_machine_learns_what_only_it_can_tell(
    scratch: Scratch, path: list[str], torch: str, expected: list[str]
) -> None:
    """When it was born, when it must be gone, a margin before the timer, and where torch is."""
    deadline, _ = arm(scratch)
    done = prepare(scratch, form={**FORM, "path": ["@torch@", *path]}, torch=torch)
    assert done.returncode == 0, done.stdout + done.stderr
    machine = json.loads((scratch.root / "machine.json").read_text())
    assert machine == {
        "machine": "digits-1",
        "created": deadline - LIFETIME,
        "deadline": deadline - 60,
        "path": expected,
    }
    assert [phase["phase"] for phase in scratch.phases()] == ["owner", "machine", "units"]
    assert all(phase["ok"] and phase["began"] <= phase["ended"] for phase in scratch.phases())
    assert scratch.asked_of_systemctl[-5:] == [
        "daemon-reload",
        "--no-reload enable kedge-unready.timer",
        "--no-block start kedge-unready.timer",
        "--no-reload enable kedge-watch.service kedge-boot.service",
        "--no-block start kedge-boot.service",
    ]
    assert not (scratch.root / "ready").exists()


@needs_root
def test_a_machine_that_cannot_be_prepared_says_so(scratch: Scratch) -> None:
    """In the sentinel that kedge waits for, instead of letting it wait."""
    done = prepare(scratch, form=FORM)
    assert done.returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert not ready.ok
    assert "No such file" in ready.phases[-1].error
    assert scratch.asked_of_systemctl[-1] == "--no-block start kedge-unready.timer"


@needs_root
def test_odd_words_of_an_error_are_readable(scratch: Scratch) -> None:
    """Quotes, backslashes and what isn't ASCII don't break the line."""
    arm(scratch)
    scratch.replace_program("systemctl", r"""printf 'a "b" \\ c\n\033[1mü\n' >&2; exit 1""")
    assert prepare(scratch, form=FORM).returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert ready.phases[-1].error.split() == ["a", '"b"', "\\", "c", "[1m"]


def as_nobody(scratch: Scratch, script: str) -> subprocess.CompletedProcess[bytes]:
    argv = ["runuser", "-u", "nobody", "--", "sh", "-c", script]
    return subprocess.run(argv, cwd=scratch.root, check=False, timeout=60)


@needs_root
def test_what_the_job_leaves_in_the_machines_folder_leads_root_nowhere() -> None:
    """It can replace nothing of root's, and links in the sentinel's place are followed with its own rights only."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-hostile-"))
    try:
        folder.chmod(0o755)
        scratch = Scratch(folder)
        arm(scratch)
        assert prepare(scratch, form=FORM, user="nobody").returncode == 0
        victim = folder / "victim"
        victim.write_text("root's")
        attacks = [
            *(f"mv {name} taken" for name in ("boot", "agent", "bin", "data", "volumes", "scratch", "machine.json")),
            *(f"rm -rf {name}" for name in ("machine.json", "boot.jsonl", "volumes", "scratch", "data")),
            "echo later >machine.json",
            "ln -sfT /etc data",
        ]
        for attack in attacks:
            assert as_nobody(scratch, attack).returncode != 0, attack
        plant = f"ln -s {victim} .ready; ln -s {victim} ready; echo '{{}}' >>boot.jsonl"
        assert as_nobody(scratch, plant).returncode == 0
        look_after(scratch, user="nobody")
        bootstrap = "from orchestrator.agent import bootstrap; import sys; sys.exit(bootstrap.main(sys.argv[1:]))"
        done = subprocess.run([sys.executable, "-c", bootstrap, str(scratch.root), "0" * 64, "nobody"], check=False)
        assert done.returncode == 1
        assert victim.read_text() == "root's"
    finally:
        shutil.rmtree(folder)


# A machine whose agent doesn't come.


def look_after(scratch: Scratch, *answers: int, user: str = ME) -> subprocess.CompletedProcess[str]:
    """Run what the timer runs, while systemd answers with these statuses whether the watch runs; 3 after them."""
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


@needs_root
def test_a_machine_whose_agent_does_not_run_is_ended_and_says_so(scratch: Scratch) -> None:
    """In the sentinel, whatever phase it was that went wrong before, and in boot.jsonl."""
    earlier = {"phase": "agent", "began": 1.0, "ended": 2.0, "ok": False, "error": "S3Error: 404"}
    (scratch.root / "boot.jsonl").write_text(json.dumps(earlier) + "\n")
    look_after(scratch)
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert not ready.ok
    assert [phase.phase for phase in ready.phases] == ["agent", "watch"]
    assert ready.phases[-1].error.strip() == "the agent doesn't run 600 s after the boot: the machine ends itself"
    assert scratch.phases()[-1]["phase"] == "watch"
    assert scratch.asked_of_systemctl == ["--no-block start kedge-end.service"]


@pytest.mark.parametrize("answers", [(0,), (3, 3, 0)])
def test_a_machine_whose_agent_runs_is_left_to_it(scratch: Scratch, answers: tuple[int, ...]) -> None:
    """Also when the watch was on its way up again at the first look."""
    assert look_after(scratch, *answers).returncode == 0
    assert scratch.asked_of_systemctl == []
    assert not (scratch.root / "boot.jsonl").exists()
    assert not (scratch.root / "ready").exists()


def test_a_machine_whose_disk_is_full_is_ended_all_the_same(scratch: Scratch) -> None:
    """It can't say why."""
    shutil.rmtree(scratch.root)
    scratch.root.write_text("a file in the folder's place: nothing can be written there")
    look_after(scratch)
    assert scratch.asked_of_systemctl == ["--no-block start kedge-end.service"]


def test_a_machine_whose_job_has_put_a_pipe_in_the_sentinels_place_is_ended_all_the_same(scratch: Scratch) -> None:
    """Nobody reads from it, and whoever writes to it waits: for 20 s at most, where the job has put it there again."""
    os.mkfifo(scratch.root / ".ready")
    look_after(scratch)
    assert scratch.asked_of_systemctl == ["--no-block start kedge-end.service"]


# Volumes.


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
        """Run the script, and a command in its mount namespace; return its exit code and what the command said."""
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
        code, _, said = done.stdout.partition("\n")
        return int(code), said + done.stderr

    def add_local(self, image: Path, name: str = "a") -> str:
        """Attach a disk that came with the machine, under two names, as udev has it."""
        device = self.attach(image, serial=f"local-{name}")
        for link in (f"local-{name}", f"local-{name}-ns-1"):
            (self.by_id / link).symlink_to(device)
        return device

    def boot_local(self, *, then: str = "", mounted_by: str = "", before: str = "", wait: int = 0) -> str:
        """Put the data on a local disk; return what the script said, and then a command in its mount namespace.

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


@pytest.fixture
def disks() -> Iterator[Disks]:
    # Not in tmp_path, which only root can look into: a volume becomes its user's.
    folder = Path(tempfile.mkdtemp(prefix="kedge-disks-"))
    folder.chmod(0o755)
    disks = Disks(folder)
    yield disks
    disks.detach()
    shutil.rmtree(folder)


def volume(serial: str = "vol0a", *, ours: bool, target: str = "imagenet", device: str = "") -> BootVolume:
    origin = Origin.MADE if ours else Origin.FOUND
    return BootVolume(serial=serial, target=target, origin=origin, device=device)


def format_with_a_file(disks: Disks, image: Path) -> None:
    source = disks.folder / "source"
    source.mkdir(exist_ok=True)
    (source / "precious").write_text("a year's work")
    done = run(["mkfs.ext4", "-q", "-d", str(source), str(image)])
    assert done.returncode == 0, done.stderr


def assert_left_alone(disks: Disks, image: Path, *, ours: bool, saying: str) -> None:
    """The boot fails, says why, and not a byte of the volume has changed."""
    before = image.read_bytes()
    code, _ = disks.mount(volume(ours=ours))
    assert code == 1
    assert image.read_bytes() == before
    ready = parse_ready((disks.root / "ready").read_bytes())
    assert not ready.ok
    assert saying in ready.phases[-1].error
    assert not disks.fstab.exists()
    assert not (disks.root / "data" / "imagenet").exists()


@needs_root
def test_a_blank_volume_of_ours_is_formatted_and_mounted(disks: Disks) -> None:
    """Owned by the user, empty, where the data belongs, and with its UUID in fstab."""
    disks.attach(disks.make("new"))
    shutil.chown(disks.root / "data", "nobody")
    code, said = disks.mount(
        volume(ours=True, target="sets/imagenet"),
        then="stat -c '%U %F' volumes/vol0a data/sets; ls -A volumes/vol0a; findmnt -no FSTYPE data/sets/imagenet",
        user="nobody",
    )
    assert code == 0, (disks.folder / "mount.log").read_text()
    assert said.splitlines() == ["nobody directory", "nobody directory", "ext4"]
    assert (disks.root / "data/sets/imagenet").readlink() == disks.root / "volumes/vol0a"
    assert disks.fstab.read_text().startswith("UUID=")
    assert "nofail" in disks.fstab.read_text()
    assert [(phase["phase"], phase["ok"]) for phase in disks.phases()] == [("volume vol0a", True)]


@needs_root
def test_a_later_boot_finds_what_an_earlier_one_has_left(disks: Disks) -> None:
    """The volume is still called ours then, and is mounted as it is, with one line in fstab."""
    disks.attach(disks.make("new"))
    assert disks.mount(volume(ours=True), then="echo mine >data/imagenet/file")[0] == 0
    assert disks.mount(volume(ours=True), then="cat data/imagenet/file") == (0, "mine\n")
    assert len(disks.fstab.read_text().splitlines()) == 1


@needs_root
@pytest.mark.parametrize("ours", [True, False])
def test_a_volume_that_holds_data_is_mounted_as_it_is(disks: Disks, ours: bool) -> None:
    """Even where kedge wrongly believes that it has just made it."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    assert disks.mount(volume(ours=ours), then="cat data/imagenet/precious") == (0, "a year's work")


@needs_root
def test_a_volume_from_a_snapshot_is_mounted_and_its_file_system_fills_it(disks: Disks) -> None:
    """The snapshot was of a smaller volume: what it held is there, and it is made to fill the room that is paid for.

    A mounted file system grows only for who has all rights, which a container hasn't: what would do it is written down.
    """
    image = disks.make("restored")
    format_with_a_file(disks, image)
    with image.open("ab") as file:
        file.truncate(96 * 1024**2)
    disks.attach(image)
    disks.replace_program("resize2fs", f'findmnt -no TARGET "$1" >>{disks.folder}/grown')
    code, said = disks.mount(replace(volume(ours=True), origin=Origin.RESTORED), then="cat data/imagenet/precious")
    assert (code, said) == (0, "a year's work"), (disks.folder / "mount.log").read_text()
    assert (disks.folder / "grown").read_text().split() == [f"{disks.root}/volumes/vol0a"]


@needs_root
def test_only_a_volume_from_a_snapshot_is_made_larger(disks: Disks) -> None:
    """A user's own stays as it is, and one that kedge has formatted fills its volume already."""
    image = disks.make("own")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("resize2fs", f"echo grown >{disks.folder}/grown")
    for ours in (True, False):
        assert disks.mount(volume(ours=ours))[0] == 0
    assert not (disks.folder / "grown").exists()


@needs_root
def test_a_file_system_that_does_not_grow_fails_the_boot(disks: Disks) -> None:
    """Else the disk would be full long before what is paid for is used."""
    image = disks.make("restored")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("resize2fs", "exit 1")
    assert disks.mount(replace(volume(ours=True), origin=Origin.RESTORED))[0] == 1
    assert "can't grow to its size" in disks.phases()[-1]["error"]


@needs_root
def test_a_blank_volume_from_a_snapshot_is_never_formatted(disks: Disks) -> None:
    """Something was to be on it: that nothing is found there is for its user to look at."""
    image = disks.make("restored")
    before = image.read_bytes()
    disks.attach(image)
    assert disks.mount(replace(volume(ours=True), origin=Origin.RESTORED))[0] == 1
    assert "formats only what it has just made" in disks.phases()[-1]["error"]
    assert image.read_bytes() == before


@needs_root
def test_nobody_becomes_root_by_what_lies_on_a_volume(disks: Disks) -> None:
    """Another machine may have left a program with root's rights on it: neither this boot nor the next heeds it."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    plant = "cp /usr/bin/id volumes/vol0a/id && chmod 4755 volumes/vol0a/id"
    try_it = "setpriv --reuid=nobody --clear-groups volumes/vol0a/id -u"
    next_boot = f"umount volumes/vol0a && mount -T {disks.fstab} {disks.root}/volumes/vol0a"
    code, said = disks.mount(volume(ours=False), then=f"{plant}; {try_it}; {next_boot}; {try_it}")
    assert (code, said.split()) == (0, ["65534", "65534"]), said


def test_the_script_is_harmless_where_the_volume_is_mounted_already(disks: Disks) -> None:
    """The unit that runs it is tried again when something after it fails."""
    disks.attach(disks.make("new"))
    again = f"sh {disks.folder}/mount.sh && findmnt -no TARGET volumes/vol0a | wc -l"
    code, said = disks.mount(volume(ours=True), then=again)
    assert (code, said.splitlines()[-1]) == (0, "1")


@needs_root
def test_a_blank_volume_that_is_not_ours_is_left_alone(disks: Disks) -> None:
    """Who knows what its owner means to do with it."""
    image = disks.make("blank")
    disks.attach(image)
    assert_left_alone(disks, image, ours=False, saying="formats only what it has just made")


@needs_root
def test_a_partition_table_is_left_alone(disks: Disks) -> None:
    """It is no file system, and not nothing."""
    image = disks.make("parts")
    done = subprocess.run(["sfdisk", "-q", str(image)], input="label: gpt\n,8M\n", text=True, check=False, timeout=30)
    assert done.returncode == 0
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, saying="PTTYPE=gpt")


@needs_root
def test_what_is_no_file_system_is_left_alone(disks: Disks) -> None:
    """Swap stands for LUKS, LVM and RAID."""
    image = disks.make("swap")
    assert run(["mkswap", str(image)]).returncode == 0
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, saying="TYPE=swap")


@needs_root
@pytest.mark.parametrize("offset", [0, 1, MIB - 1, 15 * MIB, 16 * MIB - 1])
def test_bytes_that_nobody_recognizes_are_left_alone(disks: Disks, offset: int) -> None:
    """One that isn't zero is enough, at the beginning or at the end."""
    image = disks.make("raw")
    with image.open("r+b") as file:
        file.seek(offset)
        file.write(b"\x01")
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, saying="isn't blank or can't be read")


@needs_root
def test_a_file_system_with_a_damaged_beginning_is_left_alone(disks: Disks) -> None:
    """No probe recognizes it any more; a person may still save it."""
    image = disks.make("damaged")
    format_with_a_file(disks, image)
    with image.open("r+b") as file:
        file.write(bytes(4096))
    disks.attach(image)
    assert_left_alone(disks, image, ours=True, saying="isn't blank or can't be read")


@needs_root
def test_a_volume_that_was_mounted_before_is_never_formatted(disks: Disks) -> None:
    """It is still called ours after a reboot, and may have been damaged until it looks blank."""
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
def test_a_probe_that_errs_formats_nothing(disks: Disks, code: int) -> None:
    """Whatever exit code it leaves with, on a volume that holds data; 2 is also what it says of a blank one."""
    image = disks.make("old")
    format_with_a_file(disks, image)
    disks.attach(image)
    disks.replace_program("blkid", f"exit {code}")
    assert_left_alone(disks, image, ours=True, saying="is left alone" if code == 2 else f"ended with {code}")


@needs_root
def test_a_disk_that_cannot_be_read_is_not_formatted(disks: Disks) -> None:
    """The real blkid says 2 of it, as of a blank one."""
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
    """After a time, and by its serial; one whose serial only ends alike is another."""
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
def test_one_volume_that_fails_does_not_keep_another_away(disks: Disks) -> None:
    """The boot fails all the same: a command that lacks its data must not start."""
    disks.attach(disks.make("new"), serial="vol0b")
    code, said = disks.mount(
        volume("vol0a", ours=True), volume("vol0b", ours=True, target="other"), then="findmnt -no FSTYPE volumes/vol0b"
    )
    assert (code, said) == (1, "ext4\n")
    assert [phase["ok"] for phase in disks.phases()] == [False, True]


@needs_root
def test_data_that_is_in_the_volumes_way_stays(disks: Disks) -> None:
    """An empty folder gives way; one with files doesn't."""
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


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env={"PATH": SYSTEM_PATH}, capture_output=True, text=True, timeout=60, check=False)


# A disk that comes with the machine.


def no_image(disks: Disks) -> None:
    """Let systemctl know no unit that mounts disks."""
    disks.replace_program("systemctl", "exit 1")


@needs_root
def test_a_local_disk_that_is_blank_holds_the_data(disks: Disks) -> None:
    """It is formatted, and is the data folder from then on, owned by the user; the largest, where there are several.

    fact: do-scratch-disk
    """
    no_image(disks)
    disks.add_local(disks.make("small", mib=16), "a")
    disks.add_local(disks.make("large", mib=64), "b")
    look = "findmnt -no FSTYPE,SIZE data; stat -c '%U %a' data; touch data/set; ls scratch/kedge-data; cat boot.jsonl"
    said = disks.boot_local(then=look)
    assert f"data is on {disks.root}/scratch" in said
    assert f"{ME} 775" in said
    assert "\nset\n" in said
    (size,) = [line.split()[1] for line in said.splitlines() if line.startswith("ext4")]
    assert float(size.rstrip("M")) > 40
    assert '"phase": "scratch"' in said
    assert '"ok": true' in said


@needs_root
def test_a_reboot_finds_the_data_where_it_was(disks: Disks) -> None:
    """The disk is known by its label, and is not formatted again; it has less room than the root disk by then."""
    no_image(disks)
    disks.add_local(disks.make("disk", mib=64))
    disks.boot_local(then="echo mine >data/set; umount data scratch")
    assert "mine" in disks.boot_local(then="cat data/set")


@needs_root
@pytest.mark.parametrize("other_mib", [64, 128], ids=["as large", "larger"])
def test_a_reboot_takes_the_disk_in_use_before_any_blank_one(disks: Disks, other_mib: int) -> None:
    """A disk beside it that is blank, and comes last by name or size, stays blank: names change from boot to boot."""
    no_image(disks)
    disks.add_local(disks.make("first", mib=64), "a")
    disks.boot_local(then="echo mine >data/set; umount data scratch")
    other = disks.make("other", mib=other_mib)
    disks.add_local(other, "b")
    assert "mine" in disks.boot_local(then="cat data/set")
    assert other.read_bytes() == bytes(other_mib * MIB)


@needs_root
@pytest.mark.parametrize("what", ["a file system", "not zero", "partitions"])
def test_a_local_disk_that_holds_something_is_left_alone(disks: Disks, what: str) -> None:
    """Not a byte changes; the data stays on the root disk, and the boot goes on."""
    no_image(disks)
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
    said = disks.boot_local(then="mountpoint data; cat boot.jsonl")
    assert "data stays on the root disk: none of" in said
    assert "data is not a mountpoint" in said
    assert '"ok": true' in said
    assert image.read_bytes() == before


@needs_root
def test_disks_that_the_image_mounts_are_awaited_and_never_formatted(disks: Disks) -> None:
    """As a Deep Learning AMI does, in its own time (fact: dlami-nvme); where it doesn't in time, nothing is touched."""
    disks.replace_program("systemctl", "exit 0")
    image = disks.make("disk", mib=64)
    disks.add_local(image)
    late = f"(sleep 1; mount -t tmpfs -o size=32m none {disks.folder}/image) &"
    said = disks.boot_local(
        mounted_by="image.service", before=late, wait=20, then="touch data/set; ls ../image/kedge-data"
    )
    assert f"data is on {disks.folder}/image" in said
    assert said.rstrip().endswith("set")
    assert "the image didn't mount" in disks.boot_local(mounted_by="image.service")
    assert image.read_bytes() == bytes(64 * MIB)


@needs_root
def test_a_disk_that_everybody_may_write_to_leads_root_nowhere(disks: Disks) -> None:
    """Where an image mounts it so, the job has put a link in the folder's place before the machine boots again."""
    disks.replace_program("systemctl", "exit 0")
    disks.add_local(disks.make("disk", mib=64))
    roots = disks.folder / "etc"
    roots.mkdir(mode=0o755)
    planted = f"mount -t tmpfs -o size=32m none {disks.folder}/image; ln -s {roots} {disks.folder}/image/kedge-data"
    said = disks.boot_local(mounted_by="image.service", before=planted, then="mountpoint data")
    assert (roots.stat().st_mode & 0o777, "data is not a mountpoint" in said) == (0o755, True), said
    assert "data stays on the root disk" in said


@needs_root
@pytest.mark.parametrize(("mib", "before"), [(2, "true"), (64, "touch data/mine")])
def test_data_stays_where_it_is_better_off(disks: Disks, mib: int, before: str) -> None:
    """Where the root disk has more room, and where some is there already, which would be hidden."""
    no_image(disks)
    disks.add_local(disks.make("disk", mib=mib))
    said = disks.boot_local(before=before, then="mountpoint data")
    assert "data stays on the root disk" in said
    assert "data is not a mountpoint" in said


def test_a_machine_without_local_disks_keeps_its_data_on_the_root_disk(scratch: Scratch) -> None:
    """The pattern matches nothing; the boot goes on."""
    names = DiskNames(volume_model="x", local=f"{scratch.folder}/none-*")
    done = scratch.sh(render("boot/scratch.sh.j2", root=str(scratch.root), user=ME, names=names, wait=0))
    assert (done.returncode, done.stderr) == (0, "")
    assert "there is no local disk" in done.stdout
