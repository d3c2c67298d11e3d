"""A run that loses its machine goes on with another, if its user wants that."""

from __future__ import annotations

import os
import re
import signal
from datetime import datetime, timedelta

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.agent.base.layout import Layout
from orchestrator.app.launch.launching import Changes, observe_and_plan, replaced_machine, resumed_spec
from orchestrator.app.root import App
from tests.e2e.runs import JOB, await_running, kill_machine, log, shipped_step, step
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

SECONDS = timedelta(seconds=15)


def test_a_run_survives_its_machine(laptop: Laptop) -> None:
    """The machine and its disk are lost; resume makes another, and the run continues from its last checkpoint."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=120)
    kill_machine(laptop, run)
    shipped = shipped_step(laptop, run)
    status = laptop.json("status", run)[0]
    assert any("gone" in finding for finding in status["findings"])
    # The ledger already has the machine's end: resume shows it anyway.
    assert f"found: machine {run}-m1 is gone" in laptop.kedge("resume", run, "--yes", "--detach")
    assert laptop.json("status", run)[0]["machines"][0]["id"] == f"{run}-m2"
    wait_until(lambda: f"going on from step {shipped}" in log(laptop))
    wait_until(lambda: step(laptop) > shipped)
    assert f"going on from step {shipped}" in laptop.kedge("logs", "--lines", "100000")


def test_resume_succeeds_although_the_lost_machine_reappears(laptop: Laptop, run: str) -> None:
    """The provider shows the first machine again after the second was made: it is ended, and the run goes on."""
    kept = laptop.home.parent / "kept"
    (laptop.state / "machines" / f"{run}-m1").rename(kept)
    kill_machine(laptop, run)
    # As if that was long ago: kedge doesn't wait for the last upload of an agent without a heartbeat for a minute.
    Layout(kept).note("heartbeat").write_text('{"time": 1}')
    laptop.kedge("resume", run, "--yes", "--detach")
    kept.rename(laptop.state / "machines" / f"{run}-m1")
    said = laptop.kedge("resume", run, "--yes", "--detach")
    assert f"- destroy machine {run}-m1 (gone)" in said
    assert f"Machine {run}-m2 is running" in said
    await_running(laptop)
    (status,) = laptop.json("status", run)
    assert [machine["id"] for machine in status["machines"]] == [f"{run}-m2"]
    assert (status["stage"], status["state"]) == ("live", "running")


def test_resume_says_what_it_found_when_the_machine_dies_while_it_plans(
    laptop: Laptop, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine was there at the start of planning, then gone: the plan for a new one says why it is needed."""
    monkeypatch.chdir(laptop.home)
    app = App(read_settings(laptop.env))
    record = app.named_run(run)
    assert app.reconcile(record) == ()
    kill_machine(laptop, run)
    plan = observe_and_plan(app, resumed_spec(record, Changes(), app.clock.now()), follow=False)
    assert replaced_machine(app, record, plan) == (f"machine {run}-m1 is gone; it ended without a kedge command",)
    app.ledger.close()


def test_a_run_whose_machine_lost_its_init_gets_another_with_its_agent(laptop: Laptop) -> None:
    """The machine still answers, but nothing would restart its agent: resume replaces it, and leaves no process."""
    laptop.write_job((JOB % "tmux").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=120)
    init = MachineFolder(laptop.state / "machines" / f"{run}-m1").init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    wait_until(lambda: not init.is_alive)
    old = laptop.processes()
    assert [machine["state"] for machine in laptop.json("status", run)[0]["machines"]] == ["unknown"]
    assert f"machine {run}-m1 is ended first" in laptop.kedge("resume", run, "--yes", "--detach")
    assert not set(old) & set(laptop.processes())
    (status,) = laptop.json("status", run)
    assert [(machine["id"], machine["state"]) for machine in status["machines"]] == [(f"{run}-m2", "ready")]
    wait_until(lambda: laptop.json("status", run)[0]["report"]["heartbeat"] > status["report"]["created"])
    wait_until(lambda: re.search(r"going on from step \d+", log(laptop)))


def test_recover_replaces_only_lost_machines(laptop: Laptop) -> None:
    """Only if the run was launched with --recover and needs one; its deadline stays the same."""
    laptop.write_job((JOB % "nohup").replace("STEPS: 100000", "STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.1"))
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    wait_until(lambda: shipped_step(laptop, run) > 0, seconds=120)
    assert f"{run} needs no new machine" in laptop.kedge("recover")
    (first,) = laptop.json("status", run)[0]["machines"]
    kill_machine(laptop, run)
    shipped = shipped_step(laptop, run)
    laptop.kedge("recover")
    (second,) = laptop.json("status", run)[0]["machines"]
    assert second["id"] == f"{run}-m2"
    # Both have the run's deadline: a replacement machine gets no extra time.
    assert abs(datetime.fromisoformat(second["deadline_at"]) - datetime.fromisoformat(first["deadline_at"])) < SECONDS
    wait_until(lambda: f"going on from step {shipped}" in log(laptop))
    wait_until(lambda: step(laptop) > shipped)
    assert f"going on from step {shipped}" in laptop.kedge("logs", "--lines", "100000")


def test_recover_ignores_runs_that_somebody_stopped(laptop: Laptop) -> None:
    """A run that an operator stopped or tore down isn't lost; a run launched without --recover is never replaced."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    laptop.kedge("stop")
    assert f"{run} needs no new machine" in laptop.kedge("recover")
    laptop.kedge("teardown", "--yes", "--no-fetch")
    assert "No live run" in laptop.kedge("recover")
    assert laptop.json("status") == []


def test_recovery_can_be_switched_off_for_a_live_run(laptop: Laptop) -> None:
    """While its command runs, when there is nothing else to change; `status` shows it."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    assert laptop.json("status", run)[0]["recover"] is True
    assert "recovery: lost machines are replaced, until 20" in laptop.kedge("status", run)
    laptop.kedge("resume", "--recover", "--no-recover", "--detach", code=2)
    laptop.kedge("resume", "--no-recover", "--detach")
    assert laptop.json("status", run)[0]["recover"] is False
    assert "recovery: none" in laptop.kedge("status", run)
    kill_machine(laptop, run)
    assert "No live run" in laptop.kedge("recover")
    assert laptop.json("status", run)[0]["machines"] == []
    laptop.kedge("teardown", "--yes")


@pytest.mark.parametrize(
    ("words", "recovers"),
    [((), True), (("--no-recover",), False), (("--recover",), True)],
    ids=["no flag", "--no-recover", "--recover"],
)
def test_a_job_says_whether_its_runs_recover_unless_a_flag_does(
    laptop: Laptop, words: tuple[str, ...], recovers: bool
) -> None:
    """The plan's notes say which; the run's record has it, together with who may reach its machines."""
    laptop.write_job(JOB % "nohup" + "    recover: true\n")
    notes = " ".join(laptop.json("plan", *words)["notes"])
    assert ("a lost machine is replaced" in notes) is recovers
    run = laptop.json("launch", "--yes", "--detach", "--ssh-from", "198.51.100.0/24", *words)["run"]
    record = laptop.ledger().run(run)
    assert record is not None
    assert (record.spec.recover, record.spec.ssh_from) == (recovers, "198.51.100.0/24")
    laptop.kedge("teardown", "--yes", "--no-fetch")


@pytest.mark.parametrize("words", [("stop",), ("teardown", "--yes", "--no-fetch")], ids=["stop", "teardown"])
def test_only_the_command_that_follows_a_run_replaces_its_machine(laptop: Laptop, words: tuple[str, ...]) -> None:
    """Another command that finds the loss rents nothing, even if the run was launched with --recover."""
    laptop.write_job(JOB % "nohup")
    run = laptop.json("launch", "--yes", "--detach", "--recover")["run"]
    kill_machine(laptop, run)
    laptop.kedge(*words, code=None)
    assert [machine.id for machine in laptop.ledger().machines(run)] == [f"{run}-m1"]
    laptop.kedge("teardown", "--yes", "--no-fetch")
