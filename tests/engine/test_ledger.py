"""The ledger: its writes survive a crash, and two commands at once are safe."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import AwaitMachine, CreateMachine, DestroyMachine
from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.job import DataMount, EarlierMode, Job, LaunchSpec, Resources
from orchestrator.core.ledger import IntentState, RunStage
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.offer import Accelerators, Offer
from orchestrator.core.values.cost import spent_usd

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = Job(
    name="digits",
    envs=(("A", "1"),),
    resources=Resources(accelerators=Accelerators(name="mi300x", count=8), usd_per_hour=Decimal("1.99")),
    data=(DataMount(source="/d", target="d"),),
    time_limit=timedelta(hours=3),
    budget_usd=Decimal("10.50"),
)
SPEC = LaunchSpec(run_id="digits-1", provider="local", job=JOB)
MACHINE = Machine(
    id="digits-1-m1",
    run_id="digits-1",
    provider="local",
    provider_id="x",
    state=MachineState.READY,
    root="/m",
    created_at=NOW,
    deadline_at=NOW + timedelta(hours=1),
    usd_per_hour=Decimal("1.99"),
    address=SshAddress(host="127.0.0.1", port=22, user="u", host_key="ssh-ed25519 A", key_file="/k"),
)

OFFER = Offer(
    provider="local",
    region="local",
    zone="",
    instance_type="local",
    accelerators=None,
    gpu_memory_gib=0,
    cpus=1,
    memory_gib=1,
    disk_gib=1,
    usd_per_hour=Decimal("1.99"),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty ledger."""
    ledger = SqliteLedger(tmp_path, SystemClock())
    yield ledger
    ledger.close()


def test_a_run_comes_back_as_it_was_written(ledger: SqliteLedger) -> None:
    """The whole specification survives: money, durations and tuples included."""
    ledger.open_run(SPEC, NOW)
    record = ledger.run("digits-1")
    assert record is not None
    assert (record.spec, record.stage, record.created_at) == (SPEC, RunStage.LIVE, NOW)


def test_a_machine_is_on_the_meter_until_its_end_is_recorded(ledger: SqliteLedger) -> None:
    """Until then it is listed as live and rented; afterwards it is history with an end."""
    ledger.open_run(SPEC, NOW)
    ledger.put_machine(MACHINE)
    assert ledger.machines(live_only=True) == (MACHINE,)
    ledger.record_machine_end(MACHINE.id, NOW + timedelta(minutes=30))
    ledger.record_machine_end(MACHINE.id, NOW + timedelta(minutes=50))
    assert ledger.machines(live_only=True) == ()
    assert ledger.rentals("digits-1")[0].until == NOW + timedelta(minutes=30)


def test_a_machine_that_reappears_is_on_the_meter_again(ledger: SqliteLedger) -> None:
    """A wrongly recorded end, or a new machine of the same name, must not hide a machine that bills."""
    ledger.open_run(SPEC, NOW)
    ledger.put_machine(MACHINE)
    ledger.record_machine_end(MACHINE.id, NOW)
    ledger.put_machine(MACHINE)
    assert ledger.machines(live_only=True) == (MACHINE,)
    assert ledger.rentals("digits-1")[0].until is None


def test_one_time_volume_costs_count_for_each_attempt_at_a_machine(ledger: SqliteLedger) -> None:
    """Also if the run got no machine in the end: the provider has charged for the volumes anyway."""
    ledger.open_run(SPEC, NOW)
    first = CreateMachine(machine_id=MACHINE.id, offers=(replace(OFFER, once_usd=Decimal("1.50")),), lifetime=HOUR)
    for _ in range(2):
        ledger.close_intent(ledger.intend("digits-1", first, NOW), IntentState.FAILED, NOW)
    (in_vain,) = ledger.rentals("digits-1")
    assert (in_vain.usd(NOW + HOUR), in_vain.duration(NOW + HOUR)) == (Decimal("3.00"), timedelta(0))
    ledger.put_machine(MACHINE)
    ledger.intend("digits-1", replace(first, machine_id="digits-1-m2", offers=(OFFER,)), NOW)
    assert spent_usd(ledger.rentals("digits-1"), NOW + HOUR) == Decimal("1.99") + Decimal("3.00")
    assert ledger.rentals("other") == ()


def test_the_mark_grows_with_each_action_on_the_run(ledger: SqliteLedger) -> None:
    """It shows whether a plan is out of date."""
    ledger.open_run(SPEC, NOW)
    before = ledger.revision("digits-1")
    ledger.intend("digits-1", AwaitMachine(machine_id="digits-1-m1"), NOW)
    assert ledger.revision("digits-1") > before
    assert ledger.revision("other") == 0


def test_an_intent_stays_open_until_it_is_settled_or_its_run_ends(ledger: SqliteLedger) -> None:
    """An open intent is what a crash leaves behind: it must never vanish by itself."""
    ledger.open_run(SPEC, NOW)
    first = ledger.intend("digits-1", DestroyMachine(machine_id="digits-1-m1"), NOW)
    ledger.intend("digits-1", AwaitMachine(machine_id="digits-1-m1"), NOW)
    ledger.close_intent(first, IntentState.DONE, NOW, "there")
    assert [intent.kind for intent in ledger.open_intents("digits-1")] == ["AwaitMachine"]
    ledger.end_run("digits-1", NOW)
    assert ledger.open_intents("digits-1") == ()
    assert ledger.runs(live_only=True) == ()


def test_a_run_that_is_opened_again_keeps_its_birth(ledger: SqliteLedger) -> None:
    """Resuming changes the specification, not the run's start time."""
    ledger.open_run(SPEC, NOW)
    ledger.end_run("digits-1", NOW)
    ledger.open_run(SPEC, NOW + timedelta(days=1))
    record = ledger.run("digits-1")
    assert record is not None
    assert (record.stage, record.created_at, record.ended_at) == (RunStage.LIVE, NOW, None)


def take(ledger: SqliteLedger, spec: LaunchSpec, minutes: float, *kinds: str, outcome: str = "succeeded") -> None:
    """Record a run that took so long on machines of these types, the last of which it has now."""
    ledger.open_run(spec, NOW)
    for number, kind in enumerate(kinds, 1):
        name, offer = f"{spec.run_id}-m{number}", replace(OFFER, instance_type=kind)
        create = CreateMachine(machine_id=name, offers=(offer,), lifetime=HOUR, starts=False)
        ledger.intend(spec.run_id, create, NOW)
        ledger.put_machine(replace(MACHINE, id=name, run_id=spec.run_id))
    ledger.note_outcome(spec.run_id, outcome, timedelta(minutes=minutes))


def run_of(number: int, **changes: Any) -> LaunchSpec:
    return LaunchSpec(run_id=f"digits-{number}", provider="local", job=msgspec.structs.replace(JOB, **changes))


def usual(ledger: SqliteLedger, **changes: Any) -> dict[str, float]:
    """Return the usual minutes, by the type of machine, of a job with these changes."""
    took = ledger.usual_durations(msgspec.structs.replace(JOB, **changes))
    return {kind: duration / timedelta(minutes=1) for kind, duration in took.items()}


def test_the_usual_duration_is_the_median_of_successes_of_the_same_mode(ledger: SqliteLedger) -> None:
    """Failures and other modes say nothing about how long a success takes; of the successes, the last five count."""
    for number, (outcome, minutes) in enumerate([("succeeded", 10), ("failed", 1), ("succeeded", 30)]):
        take(ledger, run_of(number), minutes, "g5", outcome=outcome)
    assert usual(ledger) == {"g5": 20}
    assert usual(ledger, mode="full") == {}
    for number in range(3, 8):
        take(ledger, run_of(number), 50, "g5")
    assert usual(ledger) == {"g5": 50}


def test_durations_are_of_a_type_of_machine_of_a_number_of_them_and_of_a_modes_arguments(ledger: SqliteLedger) -> None:
    """What a laptop took says nothing about a cloud; a run that went on on another type measures neither."""
    take(ledger, run_of(1), 10, "g5", "g5")
    take(ledger, run_of(2), 99, "g4", "g5")
    take(ledger, run_of(3), 40, "g4")
    take(ledger, run_of(4, num_nodes=4), 3, "g5")
    take(ledger, run_of(5, mode="custom", mode_arguments=("100", "8")), 7, "g5")
    assert usual(ledger) == {"g5": 10, "": 99, "g4": 40}
    assert usual(ledger, num_nodes=4) == {"g5": 3}
    assert usual(ledger, mode="custom", mode_arguments=("100", "8")) == {"g5": 7}
    assert usual(ledger, mode="custom", mode_arguments=("100", "9")) == {}


def test_offers_without_capacity_say_nothing_of_the_machine_that_came(ledger: SqliteLedger) -> None:
    """A run whose first offers were refused measures the type that it got."""
    full = CreateMachine(machine_id="digits-1-m1", offers=(replace(OFFER, instance_type="g4"),), lifetime=HOUR)
    ledger.open_run(run_of(1), NOW)
    ledger.close_intent(ledger.intend("digits-1", full, NOW), IntentState.FAILED, NOW, "no capacity")
    take(ledger, run_of(1), 10, "g5")
    assert usual(ledger) == {"g5": 10}


def test_each_mode_of_a_run_has_its_own_outcome_and_duration(ledger: SqliteLedger) -> None:
    """A run that changes its mode has no outcome until the new one has; the one that it has left still counts."""
    first = run_of(1, mode="validate")
    take(ledger, first, 10, "g5")
    left = EarlierMode(mode="validate", outcome="succeeded", seconds=600.0)
    second = replace(first, job=msgspec.structs.replace(JOB, mode="fast"), earlier=(left,), mode_since=NOW)
    ledger.open_run(second, NOW)
    ledger.open_run(second, NOW)
    record = ledger.run("digits-1")
    assert record is not None
    assert (record.outcome, record.spec) == ("", second)
    assert usual(ledger, mode="validate") == {"g5": 10}
    assert usual(ledger, mode="fast") == {}
    ledger.note_outcome("digits-1", "succeeded", timedelta(minutes=30))
    ledger.open_run(second, NOW)
    assert usual(ledger, mode="fast") == {"g5": 30}


def test_an_earlier_mode_took_the_time_of_its_command_not_that_of_all_machines(ledger: SqliteLedger) -> None:
    """Four machines that train for an hour are billed for four; a machine that waits overnight is billed, too."""
    left = EarlierMode(mode="custom", arguments=("7",), outcome="succeeded", seconds=4 * 3600.0, took_seconds=3600.0)
    fast = msgspec.structs.replace(JOB, mode="fast")
    spec = LaunchSpec(run_id="digits-1", provider="local", job=fast, earlier=(left,), mode_since=NOW)
    take(ledger, spec, 0, "g5", outcome="")
    assert usual(ledger, mode="custom", mode_arguments=("7",)) == {"g5": 60}


def test_the_writes_of_a_killed_process_are_kept(tmp_path: Path) -> None:
    """SIGKILL between two writes: the first is there, and the run's lock is free again."""
    script = f"""
    import os, signal, datetime, pathlib
    from orchestrator.adapters.host.clock import SystemClock
    from orchestrator.adapters.ledger.sqlite import SqliteLedger
    from orchestrator.core.actions import AwaitMachine
    from orchestrator.core.job import Job, LaunchSpec
    ledger = SqliteLedger(pathlib.Path({str(tmp_path)!r}), SystemClock())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    with ledger.lock("r"):
        ledger.open_run(LaunchSpec(run_id="r", provider="local", job=Job(name="j")), now)
        ledger.intend("r", AwaitMachine(machine_id="r-m1"), now)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -9
    ledger = SqliteLedger(tmp_path, SystemClock())
    with ledger.lock("r"):
        assert [intent.subject for intent in ledger.open_intents("r")] == ["r-m1"]
    ledger.close()


def test_a_locked_run_is_refused_to_others_and_free_after(ledger: SqliteLedger, tmp_path: Path) -> None:
    """A second command fails at once; other runs aren't locked."""
    other = SqliteLedger(tmp_path, SystemClock())
    with ledger.lock("a"), other.lock("b"), pytest.raises(ConflictError), other.lock("a"):
        pass
    with other.lock("a"):
        pass
    other.close()


def test_many_commands_at_once_lose_nothing(tmp_path: Path) -> None:
    """Eight ledgers that open, migrate and write at the same time: every intent is there."""

    def write(number: int) -> None:
        ledger = SqliteLedger(tmp_path, SystemClock())
        ledger.open_run(SPEC, NOW)
        for step in range(10):
            ledger.intend("digits-1", AwaitMachine(machine_id=f"{number}-{step}"), NOW)
        ledger.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    ledger = SqliteLedger(tmp_path, SystemClock())
    assert len({intent.subject for intent in ledger.open_intents("digits-1")}) == 80
    ledger.close()


def test_a_ledger_of_a_newer_kedge_is_refused(tmp_path: Path) -> None:
    """An old kedge doesn't guess at an unknown schema."""
    import sqlite3

    SqliteLedger(tmp_path, SystemClock()).close()
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(KedgeError, match="newer kedge"):
        SqliteLedger(tmp_path, SystemClock())


def test_a_time_limit_is_stored_as_earlier_versions_stored_it() -> None:
    """Under the job file's key, `deadline`: each version reads the other's runs."""
    earlier = b'{"run_id":"digits-1","provider":"local","job":{"name":"digits","deadline":"PT10800S"}}'
    spec = msgspec.json.decode(earlier, type=LaunchSpec)
    assert spec.job.time_limit == timedelta(hours=3)
    assert msgspec.to_builtins(spec)["job"]["deadline"] == "PT10800S"
