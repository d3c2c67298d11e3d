"""A run goes on through all restarts around it: kedge's units, cloud-init's, sshd, and those of needrestart."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.machines.first_boot import MAKE_PACKAGE
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    start: boot
    run: exec python3 train.py
    outputs: [results]
    envs: {STEPS: 100000, PAUSE: 0.1, SAVE_EVERY: 1000, KEDGE_TORCH_WHEEL: none}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    supervisor: {kind: tmux, restarts: 0, grace: 10s}
"""
UNITS = (
    "kedge-boot.service",
    "kedge-watch.service",
    "kedge-unready.timer",
    "kedge-unready.service",
    "kedge-deadline.timer",
    "cloud-init-local.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-final.service",
    "ssh.service",
)
HOLD = """
import fcntl, subprocess, time
lock = open('/var/lib/dpkg/lock-frontend', 'w')
fcntl.lockf(lock, 2)
open('/run/held', 'w')
while subprocess.call(['pgrep', '-x', 'apt-get'], stdout=-3):
    time.sleep(0.1)
time.sleep(4)
"""
"""Holds dpkg's lock until apt has waited for it."""
GROUP = 'python3 -c \'import json; print(json.load(open("/opt/kedge/state.json"))["group"])\''
SESSIONS = "SCREENDIR=/opt/kedge/sockets/screen screen -ls || true"
INSTALL = "sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -q --reinstall ./toy.deb 2>&1"


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account, and a job that doesn't end by itself."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    laptop.write_job(JOB)
    yield laptop
    assert box.billing() == [], "something is left billing"


class Machine:
    """The run's machine, and the command on it."""

    def __init__(self, laptop: Laptop) -> None:
        self._laptop = laptop

    def sh(self, script: str) -> str:
        """Run a script as the job's user."""
        return self._run(script)

    def admin(self, script: str) -> str:
        """Run a script as the user who has sudo."""
        return self._run(script, "--admin")

    def _run(self, script: str, *options: str) -> str:
        return self._laptop.kedge("exec", *options, "--", "sh", "-c", f"cd ~ && {{ {script}\n}}").strip()

    @property
    def pid(self) -> int:
        """Return the command's process id."""
        return int(self.sh(GROUP))

    @property
    def scope(self) -> str:
        """Return the last part of the command's control group."""
        return self.sh(f"grep name=systemd /proc/{self.pid}/cgroup || cat /proc/{self.pid}/cgroup").rpartition("/")[2]

    def await_steps(self) -> None:
        """Wait until the command has done some more steps."""
        count = "wc -l </opt/kedge/results/output/results/steps.log"
        done = int(self.sh(count))
        wait_until(lambda: int(self.sh(count)) > done + 2)


def test_no_restart_and_no_upgrade_ends_a_run(box: Box, laptop: Laptop) -> None:
    """The same process goes on training, in its own scope; and a killed watch is restarted.

    Under tmux, nohup and screen.

    The image's own upgrade would hold dpkg's lock for 180 s: it is masked before it starts. If another process holds
    the lock, apt waits. needrestart then restarts services, but none of kedge's.
    fact: first-boot-apt-holds-the-lock; fact: first-boot-needrestart; fact: apt-lock-timeout;
    fact: bootcmd-precedes-timers; fact: restart-kills-the-group.
    """
    laptop.kedge("launch", "--yes", "--detach", "--keep")
    machine = Machine(laptop)
    wait_until(lambda: '"state": "running"' in machine.sh("/opt/kedge/bin/kedge-agent report"), seconds=240)
    machine.await_steps()
    pid = machine.pid
    assert machine.scope.startswith("kedge-run-")
    restart = f"for unit in {' '.join(UNITS)}; do sudo systemctl restart $unit; echo $unit $({GROUP}); done"
    assert machine.admin(restart).splitlines() == [f"{unit} {pid}" for unit in UNITS]
    machine.await_steps()

    watch = "systemctl show kedge-watch.service -P MainPID"
    killed = machine.sh(watch)
    machine.admin(f"sudo kill -9 {killed}")
    wait_until(lambda: machine.sh(watch) not in ("0", killed))
    beat = "cat /opt/kedge/heartbeat.json"
    wait_until(lambda: time.time() - json.loads(machine.sh(beat))["time"] < 2)

    masked = machine.sh(
        "systemctl is-enabled apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service || true"
    )
    assert masked.split() == ["masked"] * 3
    machine.admin(f"sudo systemd-run --quiet --unit=innocent sleep 600; {MAKE_PACKAGE}")
    began = time.monotonic()
    assert "restart innocent.service" in machine.admin(INSTALL)
    assert time.monotonic() - began < 60, "nobody held the lock"
    hold = f'sudo systemd-run --quiet --unit=kedge-lock python3 -c "{HOLD}"; until [ -e /run/held ]; do sleep 0.1; done'
    said = machine.admin(f"{hold}; {INSTALL}")
    assert "Waiting for cache lock" in said
    assert "restart kedge-" not in said
    assert machine.pid == pid
    machine.await_steps()

    for supervisor in ("nohup", "screen"):
        machine.sh("/opt/kedge/bin/kedge-agent stop >/dev/null")
        other = f's/"(tmux|nohup)"/"{supervisor}"/'
        started = machine.sh(f"sed -E '{other}' /opt/kedge/run.json | /opt/kedge/bin/kedge-agent start")
        assert json.loads(started)["supervisor"] == supervisor
        wait_until(lambda: '"state": "running"' in machine.sh("/opt/kedge/bin/kedge-agent report"))
        assert machine.scope.startswith("kedge-run-")
        pid = machine.pid
        machine.admin("sudo systemctl restart kedge-watch.service kedge-boot.service ssh.service")
        assert machine.pid == pid
        machine.await_steps()
        assert ("(Detached)" in machine.sh(SESSIONS)) is (supervisor == "screen")

    machine.admin("sudo systemctl stop kedge-watch")
    machine.sh("echo '{\"time\": 1}' >/opt/kedge/heartbeat.json")
    began = time.monotonic()
    said = laptop.kedge("teardown", "--yes")
    assert time.monotonic() - began < 60, "a dead agent uploads nothing, and is not waited for"
    assert "no heartbeat for" in said
    assert "a verified copy of the results is on this computer" in said
