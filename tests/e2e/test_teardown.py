"""What teardown ends and what it leaves; plans that are out of date."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.launch.launching import Changes, observe_and_plan, resumed_spec
from orchestrator.app.root import App
from orchestrator.core.errors import ConflictError
from tests.e2e.runs import kill_machine, log
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


def test_a_torn_down_run_resumes_from_the_checkpoint_of_its_stop(laptop: Laptop) -> None:
    """The store has what the command wrote on SIGTERM before the machine is destroyed, fetched or not."""
    laptop.write_job("""
        name: saver
        run: |
          test -f "$KEDGE_CHECKPOINT_DIR/last" && echo "found $(cat "$KEDGE_CHECKPOINT_DIR/last")"
          trap 'echo final > "$KEDGE_CHECKPOINT_DIR/last"; exit 0' TERM
          echo ready
          while true; do sleep 0.1; done
        supervisor: {kind: nohup, restarts: 0, grace: 10s}
    """)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "ready" in log(laptop))
    laptop.kedge("teardown", "--yes", "--no-fetch")
    laptop.kedge("resume", run, "--yes", "--detach")
    wait_until(lambda: "found final" in log(laptop))


def test_an_outdated_plan_is_not_carried_out(laptop: Laptop, run: str) -> None:
    """Two resumes are planned for a lost machine; the second one to be confirmed rents nothing."""
    kill_machine(laptop, run)
    app = App(replace(read_settings(laptop.env), cwd=laptop.home))
    record = app.choose_run(run)
    app.reconcile(record)
    spec = resumed_spec(record, Changes(), app.clock.now())
    plan = observe_and_plan(app, spec, follow=False)
    laptop.kedge("resume", run, "--yes", "--detach")
    with pytest.raises(ConflictError, match="since this plan was made"):
        app.apply(spec, plan, lambda _event: None)
    assert len(laptop.provider().machines()) == 1


def test_a_command_that_cannot_be_stopped_does_not_prevent_a_teardown(laptop: Laptop, run: str) -> None:
    """The agent is broken: teardown reports it, and ends the machine anyway."""
    agent = laptop.state / "machines" / f"{run}-m1" / "agent" / "kedge_agent" / "run" / "control.py"
    agent.write_text("raise OSError(28, 'No space left on device')")
    said = laptop.kedge("teardown", "--yes")
    assert "No space left" in said
    assert laptop.processes() == []
    assert laptop.json("status", "--all")[0]["stage"] == "ended"


def test_another_folder_s_run_is_never_torn_down(laptop: Laptop, run: str) -> None:
    """In the wrong folder, teardown names the other folder's runs, and ends nothing."""
    elsewhere = laptop.home.parent / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [*laptop.program, "teardown", "--yes"],
        cwd=elsewhere,
        env=laptop.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert run in done.stderr
    assert laptop.json("status")[0]["state"] == "running"


def test_a_machine_that_the_ledger_has_lost_is_found_and_ended(laptop: Laptop, run: str) -> None:
    """The ledger is gone: status names the machine, and teardown ends it by the run's name."""
    for path in laptop.state.glob("ledger.db*"):
        path.unlink()
    (stray,) = laptop.json("status")
    assert (stray["run"], stray["stage"]) == (run, "stray")
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert laptop.json("status") == []


def test_a_live_machine_keeps_its_deadline(laptop: Laptop, run: str) -> None:
    """A flag that can't be carried out is refused, not ignored; without it resume has nothing to do."""
    laptop.kedge("resume", run, "--yes", "--detach", "--ttl", "4h", code=2)
    assert "whose deadline --ttl doesn't change" in laptop.errors
    assert laptop.json("resume", run, "--yes", "--detach")["state"] in ("setting-up", "running")
