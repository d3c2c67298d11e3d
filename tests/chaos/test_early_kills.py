"""A launch is killed while its machine boots: whichever command comes next waits for the machine and continues.

The times are drawn from a seed, and count from the first trace of the machine; KEDGE_EARLY_KILLS says how many.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from orchestrator.core.machine import MachineState
from tests.chaos.draws import draw_kills
from tests.support.laptop import Laptop
from tests.support.samples import how_many
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.05}
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
KILLS = how_many("KEDGE_EARLY_KILLS", usual=7, all_of_them=28)
LONGEST_BOOT_S = 1.0
COMMANDS = (
    ("resume", "--yes", "--detach"),
    ("exec", "--", "true"),
    ("start",),
    ("sync-code",),
    ("stop",),
    ("fetch",),
    ("logs",),
)


@pytest.mark.parametrize(("seconds", "words"), draw_kills(KILLS, COMMANDS, first=0, last=LONGEST_BOOT_S))
def test_the_next_command_waits_for_a_machine_that_boots(
    laptop: Laptop, seconds: float, words: tuple[str, ...]
) -> None:
    """It finds the machine, even if the ledger doesn't have it yet, and does its work. A teardown leaves nothing.

    A machine whose init was never started can't boot: the command says that `resume` makes another.
    """
    laptop.write_job(JOB)
    launch = laptop.start("launch", "--yes", "--detach")
    machines = laptop.state / "machines"
    wait_until(lambda: machines.is_dir() and any(machines.iterdir()))
    time.sleep(seconds)
    launch.kill()
    launch.wait()
    (found,) = laptop.provider().machines()
    boots = found.state in (MachineState.BOOTING, MachineState.READY) or words[0] == "resume"
    laptop.kedge(*words, code=0 if boots else None)
    if laptop.errors.startswith("error"):
        assert "`kedge resume" in laptop.errors
        laptop.kedge("resume", "--yes", "--detach")
    laptop.kedge("teardown", "--yes")
    assert laptop.processes() == []
    assert list(machines.iterdir()) == []
    ledger = laptop.ledger()
    assert (ledger.machines(live_only=True), ledger.runs(live_only=True)) == ((), ())
    ledger.close()


def test_each_command_waits_for_a_machine_that_is_recorded_as_booting(laptop: Laptop) -> None:
    """A launch that is killed between the creation and the end of the boot leaves this record."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    for words in COMMANDS:
        ledger = laptop.ledger()
        (machine,) = ledger.machines(run, live_only=True)
        ledger.put_machine(replace(machine, state=MachineState.BOOTING, address=None))
        ledger.close()
        output = laptop.kedge(*words) + laptop.errors
        # The other commands ask the provider before they plan, or the machine when they act.
        assert words[0] not in ("exec", "logs") or "is still booting: waiting for it" in output
    laptop.kedge("teardown", "--yes", "--no-fetch")
