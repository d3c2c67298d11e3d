"""A droplet's life from its creation to its self-deletion, on a machine of the box that really boots."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Remote
from orchestrator.engine.steps.boot import await_boot
from orchestrator.engine.world import World
from tests.adapters.digitalocean.world import M1, RUN, DoWorld, restock_mi300x
from tests.adapters.remote.sshd import short_folder
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.fakes import FakeProvider, make_world

DELETE_TOKEN = "KEDGE_DIGITALOCEAN_DELETE_TOKEN"
STATE = "/var/lib/kedge"


@dataclass
class Laptop:
    """A laptop that creates a droplet, waits for its boot, and connects to it."""

    do: DoWorld
    connector: SshConnector
    ledger: SqliteLedger

    @property
    def key(self) -> str:
        return (self.do.folder / "key.pub").read_text().strip()

    def world(self) -> World:
        world = make_world(self.ledger, FakeProvider())
        return replace(world, provider=self.do.provider(), connector=self.connector)

    def boot(self) -> tuple[Machine, Remote]:
        self.do.provider().create(self.do.order(authorized_key=self.key))
        machine, report = await_boot(self.world(), RUN, M1)
        assert report.machine == M1
        assert machine.address
        return machine, self.connector.connect(machine.address.as_admin)


@pytest.fixture
def laptop(do_box: DigitalOceanBox, tmp_path: Path) -> Iterator[Laptop]:
    restock_mi300x(do_box)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    with short_folder() as runtime:
        clock = SystemClock()
        connector = SshConnector(SshFiles(pins=tmp_path / "pins", runtime=runtime / "run"), clock)
        yield Laptop(
            DoWorld(api=do_box, folder=tmp_path, clock=clock), connector, SqliteLedger(tmp_path / "ledger", clock)
        )
        connector.close()


def read(remote: Remote, script: str) -> str:
    """Run a script as root over the administrator's connection."""
    done = remote.run(["sudo", "sh", "-c", script])
    assert done.exit_code == 0, done.stderr.decode()
    return done.stdout.decode()


def wait_until(condition: Callable[[], bool], seconds: float = 90) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "the condition did not hold in time"
        time.sleep(0.2)


def test_a_droplet_receives_its_files_over_ssh_and_deletes_itself(laptop: Laptop, do_box: DigitalOceanBox) -> None:
    """It first answers "please wait". Only root can read its secrets, and only its own host key is left."""
    do_box.settings.early_ssh_seconds = 3
    token = do_box.make_token(*SCOPES)
    laptop.do.environ[DELETE_TOKEN] = token
    machine, remote = laptop.boot()
    assert machine.address
    assert (machine.address.provisional, machine.address.host_key.split()[0]) == (False, "ssh-ed25519")
    assert read(remote, f"stat -c '%a %U' {STATE}/api.curl {STATE}/api-ca.pem").split("\n")[:2] == ["600 root"] * 2
    assert read(remote, "ls /etc/ssh/ssh_host_*").split() == [
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_ed25519_key.pub",
    ]
    (droplet,) = do_box.droplets()
    assert token not in droplet.user_data
    seen = f"ps axww; journalctl --no-pager; cat /var/log/cloud-init*.log {machine.root}/*.json* || true"
    assert token not in read(remote, seen)
    phases = read(remote, f"cat {machine.root}/boot.jsonl")
    assert [name for name in ("machine", "secrets", "agent", "code", "start") if f'"{name}"' not in phases] == []
    assert '"ok": false' not in phases
    # The agent calls this when the run is done. It also ends the job's sessions, including this one.
    with suppress(UnreachableError):
        assert laptop.connector.connect(machine.address).run([machine.agent, "end"]).exit_code == 0
    wait_until(lambda: do_box.droplets() == [])


def test_a_droplet_whose_laptop_is_gone_deletes_itself_at_its_deadline(laptop: Laptop, do_box: DigitalOceanBox) -> None:
    """The timer does not need the agent, which is stopped here. The deadline is moved to two seconds from now."""
    laptop.do.environ[DELETE_TOKEN] = do_box.make_token(*SCOPES)
    _machine, remote = laptop.boot()
    read(remote, "systemctl disable --now kedge-watch.service kedge-boot.service")
    read(remote, "sed -i 's/^OnActiveSec=.*/OnActiveSec=2s/' /etc/systemd/system/kedge-deadline.timer")
    read(remote, "systemctl daemon-reload; systemctl --no-block restart kedge-deadline.timer")
    laptop.connector.close()
    wait_until(lambda: do_box.droplets() == [])


def test_a_droplet_without_a_token_powers_off_and_still_exists(laptop: Laptop, do_box: DigitalOceanBox) -> None:
    """At least it computes nothing. Somebody else has to end its bill."""
    machine, remote = laptop.boot()
    assert remote.run([machine.agent, "end"]).exit_code == 2
    read(remote, "systemctl --no-block start kedge-deadline.service")
    wait_until(lambda: [droplet.powered for droplet in do_box.droplets()] == [False])
