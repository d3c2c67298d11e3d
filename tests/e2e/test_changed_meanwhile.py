"""A launch that has followed its run all the time replaces a lost machine as other commands have changed the run."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.machine import Machine, MachineState
from tests.e2e.runs import kill_machine
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: while true; do echo "$EPOCHS" >"$KEDGE_OUTPUT_DIR/epochs"; sleep 0.2; done
    envs: {EPOCHS: 99}
    deadline: 1h
    budget: 10
    supervisor: {kind: nohup, restarts: 0, grace: 1s}
"""


def follow(laptop: Laptop) -> str:
    """Launch a run that is followed until the test's end, and return its id once its command runs."""
    laptop.write_job(JOB)
    laptop.start("launch", "--provider", "local", "--price", "2", "--yes", "--recover")
    wait_until(lambda: bool(list(laptop.state.glob("machines/*/results/output/epochs"))))
    (status,) = laptop.json("status")
    return str(status["run"])


def test_the_next_machine_ends_at_the_new_deadline(laptop: Laptop) -> None:
    """The launch has read the old one."""
    run = follow(laptop)
    provider = laptop.provider()
    laptop.json("extend", run, "1h", "--yes")
    (machine,) = provider.machines()
    provider.destroy(machine.id)

    def replacement() -> list[Machine]:
        # Before it is created as a whole, what is known of it is a guess.
        return [each for each in provider.machines() if each.id == f"{run}-m2" and each.state is MachineState.READY]

    wait_until(lambda: bool(replacement()))
    (other,) = replacement()
    # It is created some seconds after its lifetime was planned.
    assert abs(other.deadline_at - machine.deadline_at) < timedelta(minutes=5)
    laptop.kedge("teardown", run, "--yes", "--no-fetch", code=None)
    wait_until(lambda: not provider.machines())


def test_the_next_machine_gets_the_new_variables(laptop: Laptop) -> None:
    """The launch had others."""
    run = follow(laptop)
    laptop.kedge("resume", run, "--env", "EPOCHS=7", "--detach", "--yes")
    kill_machine(laptop, run)
    written = laptop.state / "machines" / f"{run}-m2" / "results" / "output" / "epochs"
    # The first machine's may be restored there before the command begins.
    wait_until(lambda: written.exists() and written.read_text() == "7\n")
    laptop.kedge("teardown", run, "--yes", "--no-fetch", code=None)
    wait_until(lambda: not laptop.provider().machines())
