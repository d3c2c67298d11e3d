"""A machine's first minutes, over a real sshd: supplies, sentinel, host key, and a laptop that dies at any step."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.ledger import SqliteLedger
from orchestrator.adapters.remote.connector import SshConnector
from orchestrator.adapters.remote.places import SshPlaces
from orchestrator.core.decoding import ANSWER_BYTES
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.ports import Completed, Connector, Remote, Supplies
from orchestrator.core.report import MachineReport
from orchestrator.engine.boot import await_boot
from orchestrator.engine.reaching import reach
from orchestrator.engine.world import World
from tests.adapters.remote.sshd import Wire, short_folder, wait_until
from tests.agent.box import RUN, Box
from tests.engine.fakes import FakeProvider, make_world
from tests.engine.gpu_cloud import FakeClock
from tests.newborn import NewbornSshd

ID = f"{RUN}-m1"
SECRET = b"only-the-machine-may-know"
# What a machine does with its supplies, in small: whole or not at all, and then it goes on booting.
TAKE = """\
cat >"$1/incoming" && [ "$(tail -c 3 "$1/incoming")" = end ] || { echo cut >&2; exit 1; }
echo taken >>"$1/times" && mv "$1/incoming" "$1/brought"
echo '{"ok": true, "phases": []}' >"$1/ready.new" && mv "$1/ready.new" "$1/ready"
echo supplied
"""


class LaptopDiedError(Exception):
    """Nothing catches it, and nothing is done after it."""


@dataclass
class BornProvider(FakeProvider):
    """Has one machine that waits for supplies, and remembers its pinned key as a record on the disk does.

    Attributes:
        machine: as it was born.
        brings: what it is brought; None for nothing.
        through: a wire that may break.
        on_look: told each time that somebody looks.
    """

    machine: Machine = field(kw_only=True)
    brings: Supplies | None = None
    pinned: str = ""
    through: Wire | None = None
    on_look: Callable[[], None] = lambda: None

    def describe(self, machine_id: str) -> Machine | None:
        self.on_look()
        assert machine_id == self.machine.id
        assert self.machine.address
        if not self.pinned:
            return replace(self.machine, address=self._wired(self.machine.address))
        address = replace(self.machine.address, host_key=self.pinned, provisional=False)
        return replace(self.machine, address=self._wired(address))

    def supplies(self, machine_id: str) -> Supplies | None:
        assert machine_id == self.machine.id
        return self.brings

    def pin(self, machine_id: str, host_key: str) -> None:
        assert machine_id == self.machine.id
        self.pinned = host_key

    def _wired(self, address: SshAddress) -> SshAddress:
        return self.through.to(address) if self.through else address


class Lifeline:
    """Counts the steps that the laptop takes, and ends its life before one of them."""

    def __init__(self, *, dies_before: int) -> None:
        self.steps: list[str] = []
        self._dies_before = dies_before

    def step(self, name: str) -> None:
        if len(self.steps) == self._dies_before:
            raise LaptopDiedError(name)
        self.steps.append(name)


class MortalRemote:
    """A connection, each command of which may be the laptop's last."""

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
    """A connector likewise."""

    def __init__(self, connector: Connector, life: Lifeline) -> None:
        self._connector = connector
        self._life = life

    def connect(self, address: SshAddress) -> Remote:
        self._life.step("connect")
        return MortalRemote(self._connector.connect(address), self._life)

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        return self._connector.ssh_argv(address, *options)

    def forget(self, address: SshAddress) -> None:
        self._connector.forget(address)

    def close(self) -> None:
        self._connector.close()


@dataclass
class Newborn:
    """A machine of which only sshd and what user-data wrote is there; its agent is real."""

    sshd: NewbornSshd
    root: Path
    provider: BornProvider
    ledger: SqliteLedger
    places: SshPlaces

    def world(self, life: Lifeline | None = None) -> World:
        connector: Connector = SshConnector(self.places, SystemClock())
        if life is not None:
            connector = MortalConnector(connector, life)
        return replace(make_world(self.ledger, self.provider), connector=connector)

    def boot(self, life: Lifeline | None = None) -> tuple[Machine, MachineReport]:
        return await_boot(self.world(life), RUN, ID)

    def is_settled(self) -> bool:
        """Only its own key is shown, and that is the one that the laptop has pinned."""
        shown = (self.sshd.shown("ed25519"), self.sshd.shown("ecdsa"))
        return shown == (self.provider.pinned, "") and shown[0] != ""


@pytest.fixture
def newborn(tmp_path: Path) -> Iterator[Newborn]:
    box = Box(tmp_path / "agent's")
    with short_folder() as short:
        sshd = NewbornSshd(short / "sshd")
        sshd.start()
        try:
            yield make_newborn(tmp_path, short, sshd, box)
        finally:
            sshd.stop()
            box.close()


def make_newborn(folder: Path, short: Path, sshd: NewbornSshd, box: Box) -> Newborn:
    root = folder / "machine"
    (root / "bin").mkdir(parents=True)
    (root / "take.sh").write_text(TAKE)
    # The agent's own, told where this sshd's keys are.
    keys = f"--folder {shlex.quote(str(sshd.keys))} --reload {shlex.quote(sshd.reload)}"
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
    places = SshPlaces(pins=folder / "pins", runtime=short / "run")
    return Newborn(sshd, root, provider, SqliteLedger(folder / "state", SystemClock()), places)


def test_a_machine_is_brought_its_supplies_and_gets_a_key_of_its_own(newborn: Newborn) -> None:
    """The content arrives whole, once; the laptop pins what it has been shown, and the first key is retired."""
    machine, report = newborn.boot()
    assert newborn.provider.brings
    assert (newborn.root / "brought").read_bytes() == newborn.provider.brings.content
    assert (newborn.root / "times").read_text() == "taken\n"
    assert machine.address
    assert (machine.address.provisional, machine.address.host_key) == (False, newborn.provider.pinned)
    assert report.machine == ID
    wait_until(newborn.is_settled)


def test_a_machine_that_fetches_all_by_itself_is_brought_nothing(newborn: Newborn) -> None:
    """It is waited for until its sentinel is there."""
    newborn.provider.brings = None
    (newborn.root / "ready").write_text('{"ok": true, "phases": []}')
    newborn.boot()
    assert not (newborn.root / "brought").exists()
    wait_until(newborn.is_settled)


def test_a_boot_that_went_wrong_is_told_with_its_reason(newborn: Newborn) -> None:
    """At once, and its key stays the first one: the next command looks again."""
    phase = {"phase": "agent", "began": 1, "ended": 2, "ok": False, "error": "disk full"}
    (newborn.root / "ready").write_text(json.dumps({"ok": False, "phases": [phase]}))
    with pytest.raises(KedgeError, match="went wrong") as caught:
        newborn.boot()
    assert caught.value.why == "agent: disk full"
    assert newborn.provider.pinned == ""


def test_a_boot_that_systemd_has_given_up_is_not_waited_for(newborn: Newborn, tmp_path: Path) -> None:
    """Whatever has killed it each time: no sentinel will come, and each minute is paid for."""
    programs = tmp_path / "programs"
    programs.mkdir()
    asked = tmp_path / "asked"
    # The first look finds a boot at work.
    (programs / "systemctl").write_text(f'#!/bin/sh\n[ -e "{asked}" ] || {{ echo "$@" >"{asked}"; exit 1; }}\n')
    (programs / "systemctl").chmod(0o755)
    newborn.sshd.force(f'PATH="{programs}:$PATH"; export PATH; eval "$SSH_ORIGINAL_COMMAND"')
    newborn.provider.brings = None
    with pytest.raises(KedgeError, match="went wrong") as caught:
        newborn.boot()
    assert "kedge-boot.service has failed" in caught.value.why
    assert asked.read_text() == "--quiet is-failed kedge-boot.service\n"


def test_a_machine_that_is_lost_while_it_boots_is_waited_for_a_minute(newborn: Newborn) -> None:
    """As a local one whose init was killed; one whose provider is only slow to say more is waited for."""
    ready, looks = newborn.provider.machine, itertools.count()
    lost = replace(ready, state=MachineState.UNKNOWN)
    clock = FakeClock()
    world = replace(newborn.world(), clock=clock)
    newborn.provider.machine = lost
    began = clock.now()
    with pytest.raises(UnreachableError, match="nobody completes its boot"):
        await_boot(world, RUN, ID)
    assert timedelta(minutes=1) < clock.now() - began < timedelta(minutes=2)

    def come() -> None:
        if next(looks) == 2:
            newborn.provider.machine = ready

    newborn.provider.on_look = come
    await_boot(world, RUN, ID)


STEPS = ("connect", "ready", "supply", "connect again", "ready again", "rekey", "connect anew", "retire", "report")


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_laptop_that_dies_before_any_step_finds_its_machine_again(newborn: Newborn, step: int) -> None:
    """That is after the step before, whose answer is lost: the next command goes on, and ends the same."""
    with pytest.raises(LaptopDiedError):
        newborn.boot(Lifeline(dies_before=step))
    machine, _report = newborn.boot()
    assert machine.address
    assert machine.address.host_key == newborn.provider.pinned != ""
    wait_until(lambda: newborn.sshd.shown("ed25519") == newborn.provider.pinned)
    assert (newborn.root / "brought").exists()


def test_a_boot_has_no_other_steps_than_those(newborn: Newborn) -> None:
    """One that learns another must learn to be cut there. A server that reloads may have to be asked again."""
    life = Lifeline(dies_before=1000)
    newborn.boot(life)
    assert len(life.steps) >= len(STEPS)
    asked = {Path(step).name for step in life.steps}
    assert asked == {"connect", "ready", newborn.root.name, "rekey", "--retire", "report"}


def test_an_image_that_answers_for_itself_only_means_not_yet(newborn: Newborn) -> None:
    """It says "please wait" to every command, with exit code 0, for as long as a connection lasts."""
    newborn.sshd.force("echo Please wait while we get your droplet ready...")
    looks = itertools.count()

    def finish_booting() -> None:
        if next(looks) == 1:
            assert not (newborn.root / "brought").exists()
            newborn.sshd.force("")

    newborn.provider.on_look = finish_booting
    newborn.boot()
    wait_until(newborn.is_settled)


@pytest.mark.parametrize("bytes_through", [1_000, 6_000, 20_000, 100_000])
def test_a_stream_that_is_cut_leaves_nothing_and_is_sent_again(newborn: Newborn, bytes_through: int) -> None:
    """Within the handshake, or anywhere in what is brought."""
    wire = Wire(newborn.sshd.port, bytes_through)
    newborn.provider.through = wire
    looks = itertools.count()

    def heal() -> None:
        if next(looks) == 1:
            assert not (newborn.root / "brought").exists()
            newborn.provider.through = None

    newborn.provider.on_look = heal
    newborn.boot()
    wire.close()
    assert (newborn.root / "times").read_text() == "taken\n"
    wait_until(newborn.is_settled)


def test_whoever_needs_a_machine_that_boots_waits_for_it_and_says_so(newborn: Newborn) -> None:
    """Its launch has died: the ledger has no address of it, and gets the one with the machine's own key."""
    born = replace(newborn.provider.machine, state=MachineState.BOOTING, address=None)
    ready, looks = newborn.provider.machine, itertools.count()
    newborn.provider.machine = replace(ready, state=MachineState.BOOTING)

    def finish_booting() -> None:
        if next(looks) == 2:
            newborn.provider.machine = ready

    newborn.provider.on_look = finish_booting
    newborn.ledger.open_run(
        LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", run="train")), born.created_at
    )
    newborn.ledger.put_machine(born)
    said: list[str] = []
    machine = reach(newborn.world(), born, said.append)
    assert said == [f"machine {ID} is still booting: waiting for it"]
    assert machine.has_booted
    (known,) = newborn.ledger.machines(RUN)
    assert known == machine
    assert reach(newborn.world(), known, said.append) == known
    assert len(said) == 1
    wait_until(newborn.is_settled)


def test_a_machine_whose_boot_went_wrong_can_be_looked_at(newborn: Newborn) -> None:
    """`kedge ssh` is how somebody sees why: with its first key, which stays."""
    phase = {"phase": "burn-in", "began": 1, "ended": 2, "ok": False, "error": "a GPU computes wrongly"}
    (newborn.root / "ready").write_text(json.dumps({"ok": False, "phases": [phase]}))
    machine = reach(newborn.world(), replace(newborn.provider.machine, address=None), lambda _text: None)
    assert machine.address == newborn.provider.machine.address
    assert newborn.provider.pinned == ""
