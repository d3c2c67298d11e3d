"""`kedge extend` on this computer: the plan, the confirmation, and a machine that outlives its first deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: while true; do cat "$KEDGE_DEADLINE_FILE" >"$KEDGE_OUTPUT_DIR/deadline"; sleep 0.2; done
    deadline: 1h
    budget: 10
    supervisor: {kind: nohup, restarts: 0, grace: 1s}
"""


def launch(laptop: Laptop, *flags: str) -> str:
    laptop.write_job(JOB)
    return str(laptop.json("launch", "--provider", "local", "--price", "2", "--yes", "--detach", *flags)["run"])


def test_a_deadline_is_planned_confirmed_and_moved(laptop: Laptop) -> None:
    """A dry run and a missing yes move nothing; a run over its budget, or one that is over, is refused."""
    run = launch(laptop)
    (machine,) = laptop.provider().machines()
    plan = laptop.json("extend", run, "2h", "--dry-run")
    assert plan["actions"][0]["kind"] == "ExtendDeadline"
    assert round(float(plan["worst_usd"]), 2) == 6
    laptop.kedge("extend", run, "2h", code=2)
    laptop.kedge("extend", run, "5h", "--yes", code=4)
    assert "kedge extend" in laptop.errors
    laptop.kedge("resume", run, "--ttl", "3h", "--yes", "--detach", code=2)
    assert f"kedge extend {run} TIME" in laptop.errors
    assert [each.deadline_at for each in laptop.provider().machines()] == [machine.deadline_at]

    said = laptop.kedge("extend", "2h", "--yes")
    assert "worst case $6" in said
    (machine_now,) = laptop.json("status", run)[0]["machines"]
    assert abs(datetime.fromisoformat(machine_now["deadline_at"]) - machine.deadline_at - timedelta(hours=2)) < (
        timedelta(seconds=2)
    )
    told = laptop.state / "machines" / f"{run}-m1" / "results" / "output" / "deadline"
    moved = machine.deadline_at.timestamp() + 7200
    wait_until(lambda: told.exists() and abs(float(told.read_text() or 0) - moved) < 30)

    later = (machine.deadline_at + timedelta(hours=5)).astimezone().isoformat()
    laptop.kedge("extend", run, "--until", later, "--budget", "20", "--yes")
    assert "its deadline is there already" in laptop.kedge("extend", run, "--until", later, "--yes")
    ledger = laptop.ledger()
    record = ledger.run(run)
    ledger.close()
    assert record is not None
    assert str(record.spec.job.budget_usd) == "20"
    laptop.kedge("teardown", run, "--yes", "--no-fetch")
    laptop.kedge("extend", run, "2h", "--yes", code=2)


def test_a_machine_ends_at_its_new_deadline_and_not_at_the_old_one(laptop: Laptop) -> None:
    """Its init and its agent go by the moved one, although nothing is running on the laptop any more."""
    run = launch(laptop, "--ttl", "3m", "--recover")
    provider = laptop.provider()
    (machine,) = provider.machines()
    # As close as the test can wait for: a move by the command leaves two minutes at least.
    near = datetime.now(UTC) + timedelta(seconds=40)
    provider.move_deadline(machine.id, near)
    laptop.json("extend", run, "2m", "--yes")
    (seen,) = provider.machines()
    assert abs(seen.deadline_at - near - timedelta(minutes=2)) < timedelta(seconds=2)
    ledger = laptop.ledger()
    record = ledger.run(run)
    ledger.close()
    assert record is not None
    assert record.spec.until is not None
    # The run's own deadline counts from the launch, its machine's from a moment later.
    assert abs(record.spec.until - machine.deadline_at - timedelta(minutes=2)) < timedelta(minutes=1)
    wait_until(lambda: datetime.now(UTC) > near + timedelta(seconds=3))
    assert provider.describe(machine.id) is not None
    soon = datetime.now(UTC) + timedelta(seconds=5)
    provider.move_deadline(machine.id, soon)
    assert provider.describe(machine.id) is not None
    wait_until(lambda: provider.describe(machine.id) is None)
    assert datetime.now(UTC) >= soon
    assert laptop.processes() == []
    laptop.kedge("teardown", run, "--yes", "--no-fetch")
