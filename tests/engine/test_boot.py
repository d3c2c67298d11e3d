"""A machine's first minutes, over a real sshd: supplies, sentinel, host key, and a laptop that dies at any step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import MachineState
from orchestrator.core.task import Task
from orchestrator.engine.steps.boot import await_boot
from orchestrator.engine.steps.reaching import reach
from tests.adapters.remote.sshd import CuttingProxy, short_folder, wait_until
from tests.agent.box import RUN, Box
from tests.engine.newborns import ID, LaptopDiedError, Lifeline, Newborn, make_newborn
from tests.support.clocks import FakeClock
from tests.support.newborn import NewbornSshd


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


def test_a_machine_is_brought_its_supplies_and_gets_a_key_of_its_own(newborn: Newborn) -> None:
    """The supplies arrive whole, once; the laptop pins the new key that sshd shows, and the first key is retired."""
    machine, report = newborn.boot()
    assert newborn.provider.brings
    assert (newborn.root / "brought").read_bytes() == newborn.provider.brings.content
    assert (newborn.root / "times").read_text() == "taken\n"
    assert machine.address
    assert (machine.address.provisional, machine.address.host_key) == (False, newborn.provider.pinned)
    assert report.machine == ID
    wait_until(newborn.is_settled)


def test_a_machine_that_fetches_everything_itself_gets_no_supplies(newborn: Newborn) -> None:
    """The launch waits for its sentinel."""
    newborn.provider.brings = None
    (newborn.root / "ready").write_text('{"ok": true, "phases": []}')
    newborn.boot()
    assert not (newborn.root / "brought").exists()
    wait_until(newborn.is_settled)


def test_a_boot_that_failed_is_reported_with_its_reason(newborn: Newborn) -> None:
    """At once, and its first key stays pinned: the next command tries again."""
    phase = {"phase": "agent", "began": 1, "ended": 2, "ok": False, "error": "disk full"}
    (newborn.root / "ready").write_text(json.dumps({"ok": False, "phases": [phase]}))
    with pytest.raises(KedgeError, match=r"the boot of machine .* failed") as caught:
        newborn.boot()
    assert caught.value.why == "agent: disk full"
    assert newborn.provider.pinned == ""


def test_there_is_no_wait_for_a_boot_that_systemd_has_given_up(newborn: Newborn, tmp_path: Path) -> None:
    """No sentinel will come, whatever killed it, and each minute costs money."""
    programs = tmp_path / "programs"
    programs.mkdir()
    asked = tmp_path / "asked"
    # The first query finds a boot that still runs.
    (programs / "systemctl").write_text(f'#!/bin/sh\n[ -e "{asked}" ] || {{ echo "$@" >"{asked}"; exit 1; }}\n')
    (programs / "systemctl").chmod(0o755)
    newborn.sshd.force(f'PATH="{programs}:$PATH"; export PATH; eval "$SSH_ORIGINAL_COMMAND"')
    newborn.provider.brings = None
    with pytest.raises(KedgeError, match=r"the boot of machine .* failed") as caught:
        newborn.boot()
    assert "kedge-boot.service has failed" in caught.value.why
    assert asked.read_text() == "--quiet is-failed kedge-boot.service\n"


def test_the_wait_for_a_machine_lost_while_booting_ends_after_a_minute(newborn: Newborn) -> None:
    """Like a local one whose init was killed; if its provider is only slow to answer, the wait goes on."""
    ready, looks = newborn.provider.machine, itertools.count()
    lost = replace(ready, state=MachineState.UNKNOWN)
    clock = FakeClock()
    world = replace(newborn.world(), clock=clock)
    newborn.provider.machine = lost
    began = clock.now()
    with pytest.raises(UnreachableError, match="nothing completes its boot"):
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
    """It died after a step whose answer is lost: the next command continues, with the same result."""
    with pytest.raises(LaptopDiedError):
        newborn.boot(Lifeline(dies_before=step))
    machine, _report = newborn.boot()
    assert machine.address
    assert machine.address.host_key == newborn.provider.pinned != ""
    wait_until(lambda: newborn.sshd.shown("ed25519") == newborn.provider.pinned)
    assert (newborn.root / "brought").exists()


def test_a_boot_has_exactly_these_steps(newborn: Newborn) -> None:
    """A new step must be added here, to be tested for deaths. A server that reloads may have to be asked again."""
    life = Lifeline(dies_before=1000)
    newborn.boot(life)
    assert len(life.steps) >= len(STEPS)
    asked = {Path(step).name for step in life.steps}
    assert asked == {"connect", "ready", newborn.root.name, "rekey", "--retire", "report"}


def test_a_busy_machine_is_asked_for_its_new_key_only_once(newborn: Newborn) -> None:
    """Its sshd takes seconds to reload its keys. If asked again, it would reload again, and never be reached."""
    newborn.slow_reloads(2)
    await_boot(newborn.world(), RUN, ID, at_most=timedelta(minutes=2))
    assert newborn.reloads == 2, "for the new key, and to retire the first one"
    wait_until(newborn.is_settled)


def test_an_image_that_answers_please_wait_is_not_ready_yet(newborn: Newborn) -> None:
    """It answers every command with this text and exit code 0, for as long as a connection lasts."""
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
def test_a_broken_stream_leaves_nothing_and_is_sent_again(newborn: Newborn, bytes_through: int) -> None:
    """During the handshake, or anywhere in the stream."""
    wire = CuttingProxy(newborn.sshd.port, bytes_through)
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


def test_a_command_that_needs_a_booting_machine_waits_and_says_so(newborn: Newborn) -> None:
    """Its launch died: the ledger has no address of it, and gets the one with the machine's own key."""
    born = replace(newborn.provider.machine, state=MachineState.BOOTING, address=None)
    ready, looks = newborn.provider.machine, itertools.count()
    newborn.provider.machine = replace(ready, state=MachineState.BOOTING)

    def finish_booting() -> None:
        if next(looks) == 2:
            newborn.provider.machine = ready

    newborn.provider.on_look = finish_booting
    newborn.ledger.open_run(
        LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))), born.created_at
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


def test_a_machine_whose_boot_failed_can_be_reached(newborn: Newborn) -> None:
    """`kedge ssh` uses its first key, which stays."""
    phase = {"phase": "burn-in", "began": 1, "ended": 2, "ok": False, "error": "a GPU computes wrongly"}
    (newborn.root / "ready").write_text(json.dumps({"ok": False, "phases": [phase]}))
    machine = reach(newborn.world(), replace(newborn.provider.machine, address=None), lambda _text: None)
    assert machine.address == newborn.provider.machine.address
    assert newborn.provider.pinned == ""
