"""A machine that waits for its supplies over a real sshd, and a laptop that dies before any step."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.ports import Completed, Connector, Remote, Supplies
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.protocol.report import MachineReport
from orchestrator.engine.steps.boot import await_boot
from orchestrator.engine.world import World
from tests.adapters.remote.sshd import CuttingProxy
from tests.agent.box import RUN, Box
from tests.support.fakes import FakeProvider, make_world
from tests.support.newborn import NewbornSshd

ID = f"{RUN}-m1"
SECRET = b"only-the-machine-may-know"
# What a machine does with its supplies, simplified: it takes them whole or not at all, then continues booting.
TAKE = """\
cat >"$1/incoming" && [ "$(tail -c 3 "$1/incoming")" = end ] || { echo cut >&2; exit 1; }
echo taken >>"$1/times" && mv "$1/incoming" "$1/brought"
echo '{"ok": true, "phases": []}' >"$1/ready.new" && mv "$1/ready.new" "$1/ready"
echo supplied
"""


class LaptopDiedError(Exception):
    """Nothing catches it, and nothing runs after it."""


@dataclass
class BornProvider(FakeProvider):
    """Has one machine that waits for supplies, and remembers its pinned key as a record on the disk does.

    Attributes:
        machine: the machine as it was created.
        brings: the supplies for it; None for none.
        secrets: what the machine's command needs, as the engine gave it last.
        through: a connection that may break.
        on_look: called at each query.
    """

    machine: Machine = field(kw_only=True)
    brings: Supplies | None = None
    secrets: dict[str, str] | None = None
    pinned: str = ""
    through: CuttingProxy | None = None
    on_look: Callable[[], None] = lambda: None

    def describe(self, machine_id: str) -> Machine | None:
        self.on_look()
        assert machine_id == self.machine.id
        assert self.machine.address
        if not self.pinned:
            return replace(self.machine, address=self._wired(self.machine.address))
        address = replace(self.machine.address, host_key=self.pinned, provisional=False)
        return replace(self.machine, address=self._wired(address))

    def supplies(self, machine_id: str, secrets: Mapping[str, str]) -> Supplies | None:
        assert machine_id == self.machine.id
        self.secrets = dict(secrets)
        return self.brings

    def pin(self, machine_id: str, host_key: str) -> None:
        assert machine_id == self.machine.id
        self.pinned = host_key

    def _wired(self, address: SshAddress) -> SshAddress:
        return self.through.to(address) if self.through else address


class Lifeline:
    """Counts the laptop's steps, and ends its life before one of them."""

    def __init__(self, *, dies_before: int) -> None:
        self.steps: list[str] = []
        self._dies_before = dies_before

    def step(self, name: str) -> None:
        if len(self.steps) == self._dies_before:
            raise LaptopDiedError(name)
        self.steps.append(name)


class MortalRemote:
    """A connection on which each command may be the laptop's last."""

    def __init__(self, remote: Remote, life: Lifeline) -> None:
        self._remote = remote
        self._life = life

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        assert SECRET.decode() not in shlex.join(argv)
        self._life.step(argv[-1])
        return self._remote.run(argv, stdin=stdin, timeout=timeout, most=most)

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        return self._remote.send(argv, chunks, timeout=timeout)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        return self._remote.lines(argv)

    def close(self) -> None:
        self._remote.close()


class MortalConnector:
    """A connector of such connections."""

    def __init__(self, connector: Connector, life: Lifeline) -> None:
        self._connector = connector
        self._life = life

    def connect(self, address: SshAddress) -> Remote:
        self._life.step("connect")
        return MortalRemote(self._connector.connect(address), self._life)

    def opened(self, address: SshAddress) -> Remote | None:
        raise AssertionError(address)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        return self._connector.ssh_argv(address, *options)

    def forget(self, address: SshAddress) -> None:
        self._connector.forget(address)

    def close(self) -> None:
        self._connector.close()


@dataclass
class Newborn:
    """A machine with only sshd and the files from user-data; its agent is real."""

    sshd: NewbornSshd
    root: Path
    provider: BornProvider
    ledger: SqliteLedger
    places: SshFiles

    def world(self, life: Lifeline | None = None) -> World:
        connector: Connector = SshConnector(self.places, SystemClock())
        if life is not None:
            connector = MortalConnector(connector, life)
        return replace(make_world(self.ledger, self.provider), connector=connector)

    def boot(self, life: Lifeline | None = None) -> tuple[Machine, MachineReport]:
        return await_boot(self.world(life), RUN, ID)

    def slow_reloads(self, seconds: float) -> None:
        """Let sshd answer nobody for some time after `systemctl reload`, which doesn't wait, as on a busy machine."""
        script = self.root / "reload.sh"
        count, reload = script.read_text().splitlines()
        stop, go_on = (reload.replace("-HUP", signal) for signal in ("-STOP", "-CONT"))
        script.write_text(f"{count}\n{stop}\n{reload}\n(sleep {seconds}; {go_on}) >/dev/null 2>&1 &\n")

    @property
    def reloads(self) -> int:
        """How often sshd was asked to reload its keys."""
        return len((self.root / "reloads").read_text().splitlines())

    def is_settled(self) -> bool:
        """Whether sshd shows only its own key, and the laptop has pinned that key."""
        shown = (self.sshd.shown("ed25519"), self.sshd.shown("ecdsa"))
        return shown == (self.provider.pinned, "") and shown[0] != ""


def make_newborn(folder: Path, short: Path, sshd: NewbornSshd, box: Box) -> Newborn:
    root = folder / "machine"
    (root / "bin").mkdir(parents=True)
    (root / "take.sh").write_text(TAKE)
    # The real agent's verb, told where this sshd's keys are.
    (root / "reload.sh").write_text(f"echo reload >>{shlex.quote(str(root))}/reloads\n{sshd.reload}\n")
    reload = shlex.join(["sh", str(root / "reload.sh")])
    keys = f"--folder {shlex.quote(str(sshd.keys))} --reload {shlex.quote(reload)}"
    agent = shlex.quote(box.launcher)
    (root / "bin/kedge-agent").write_text(
        f'#!/bin/sh\ncase $1 in\nrekey) exec {agent} "$@" {keys} ;;\n*) exec {agent} "$@" ;;\nesac\n'
    )
    (root / "bin/kedge-agent").chmod(0o755)
    now = datetime.now(UTC)
    machine = Machine(
        id=ID,
        run_id=RUN,
        provider="fake",
        provider_id="1",
        state=MachineState.READY,
        root=str(root),
        created_at=now,
        deadline_at=now + timedelta(hours=1),
        usd_per_hour=Decimal(1),
        address=sshd.address,
    )
    supplies = Supplies(argv=("sh", str(root / "take.sh"), str(root)), content=SECRET + b"\0" * 100_000 + b"end")
    provider = BornProvider(machine=machine, brings=supplies)
    places = SshFiles(pins=folder / "pins", runtime=short / "run")
    return Newborn(sshd, root, provider, SqliteLedger(folder / "state", SystemClock()), places)
