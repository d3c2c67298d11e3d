"""`kedge extend` is killed before and after each write to the ledger: the same command again finishes it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from tests.support.laptop import Laptop

DRIVER = "crashing_extend.py"
JOB = """
    name: toy
    workdir: .
    run: sleep 1000
    deadline: 1h
    budget: 1000
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
WRITES = 3
"""How often a move of one machine writes to the ledger; the test counts."""
EARLY = timedelta(seconds=30)
"""How much earlier than asked for a machine may end: it counts whole seconds, and was asked over SSH."""


def deadlines(laptop: Laptop, run: str) -> dict[str, datetime]:
    """Return the deadline by each of its keepers: agent, init, provider and ledger."""
    folder = laptop.state / "machines" / f"{run}-m1"
    times = {name: json.loads((folder / f"{name}.json").read_text())["deadline"] for name in ("machine", "armed")}
    (machine,) = laptop.provider().machines()
    found = {name: datetime.fromtimestamp(at, machine.deadline_at.tzinfo) for name, at in times.items()}
    ledger = laptop.ledger()
    (recorded,) = ledger.machines(run, live_only=True)
    ledger.close()
    return {**found, "provider": machine.deadline_at, "ledger": recorded.deadline_at}


def agree(found: dict[str, datetime], on: datetime) -> bool:
    """Tell whether all keepers have a deadline."""
    return all(timedelta(0) <= on - at <= EARLY for at in found.values())


def test_a_killed_extension_is_finished_by_the_same_command(laptop: Laptop) -> None:
    """At each point the keepers have the old deadline or the new one, and the ledger the later one.

    One machine lives through all kills, which every other time a status settles instead.
    """
    laptop.write_job(JOB)
    run = laptop.json("launch", "--provider", "local", "--price", "2", "--yes", "--detach")["run"]
    before = deadlines(laptop, run)["ledger"]
    points = [(moment, number) for number in range(1, WRITES + 1) for moment in ("before", "after")]
    for turn, (moment, number) in enumerate(points):
        after = before + timedelta(hours=1)
        assert laptop.drive(DRIVER, moment, str(number), run, "1h").returncode == -9
        found = deadlines(laptop, run)
        assert all(min(abs(at - before), abs(at - after)) <= EARLY for at in found.values()), (moment, number)
        assert found["ledger"] + timedelta(seconds=1) > max(found["armed"], found["machine"]), (moment, number)
        began = (moment, number) != ("before", 1)
        if turn % 2 and began:
            laptop.json("status")
        else:
            laptop.json("extend", run, "1h", "--yes")
        found = deadlines(laptop, run)
        assert agree(found, after), (moment, number, found)
        ledger = laptop.ledger()
        assert ledger.open_intents(run) == ()
        ledger.close()
        before = after
    assert laptop.drive(DRIVER, "after", str(WRITES + 1), run, "1h").returncode == 0
    assert agree(deadlines(laptop, run), before + timedelta(hours=1))
    laptop.kedge("teardown", run, "--yes", "--no-fetch")
    assert laptop.processes() == []
