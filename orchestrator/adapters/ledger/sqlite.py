"""The ledger, in one SQLite file: WAL, full sync, a versioned schema; two commands at once are safe."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from orchestrator.adapters.host.claims import hold
from orchestrator.adapters.host.files import make_folder, require_no_link
from orchestrator.adapters.host.private import keep_file_private
from orchestrator.adapters.ledger.migrations import MIGRATIONS
from orchestrator.adapters.ledger.paid_once import PAID_ONCE, PaidOnce, add_up
from orchestrator.adapters.ledger.run_modes import DURATIONS, OPEN_RUN
from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import Intent, IntentState, RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.values.cost import Rental
from orchestrator.core.values.structs import decode_json

if TYPE_CHECKING:
    from orchestrator.core.actions import Journaled
    from orchestrator.core.ports import Clock

_Record = TypeVar("_Record")

_COUNTED = 5
"""How many of the last successes say how long the next one will take."""
_WAIT_SECONDS = 10.0
"""How long a command waits for another's transaction."""


class SqliteLedger:
    """Implements `core.ledger.Ledger`."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._clock = clock
        self._locks = state_dir / "locks"
        make_folder(self._locks)
        self._path = state_dir / "ledger.db"
        require_no_link(self._path, within=state_dir)
        keep_file_private(self._path)  # SQLite gives the write-ahead log the same mode
        # Threads that query machines use it too, one at a time (ssh/reopening.py), while the main thread doesn't.
        self._db = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;")
        self._migrate()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def open_run(self, spec: LaunchSpec, at: datetime) -> None:
        """Record a new run, or the changed specification of an existing one."""
        self._write(
            OPEN_RUN,
            (spec.run_id, spec.job.name, spec.job.mode, _encode(spec), RunStage.LIVE, at.isoformat()),
        )

    def end_run(self, run_id: str, at: datetime) -> None:
        """Record that the provider has nothing left of the run; this also closes its open intents."""
        with self._transaction():
            self._db.execute(
                "UPDATE intents SET state = ?, settled_at = ?, detail = 'the run ended' WHERE run_id = ? AND state = ?",
                (IntentState.FAILED, at.isoformat(), run_id, IntentState.OPEN),
            )
            self._db.execute(
                "UPDATE runs SET stage = ?, ended_at = ? WHERE run_id = ?",
                (RunStage.ENDED, at.isoformat(), run_id),
            )

    def note_outcome(self, run_id: str, outcome: str, took: timedelta) -> None:
        """Record the command's last known state, and how long it has run."""
        self._write(
            "UPDATE runs SET outcome = ?, took_seconds = ? WHERE run_id = ?",
            (outcome, took.total_seconds(), run_id),
        )

    def usual_durations(self, job: Job) -> dict[str, timedelta]:
        """Return, for each type of machine, the median duration of the last five successes of a job in its mode."""
        rows = self._read(
            f"SELECT instance_type, took_seconds FROM ({DURATIONS}) WHERE job = ? AND mode = ? AND arguments = ?"  # noqa: S608
            " AND num_nodes = ? AND outcome = 'succeeded' ORDER BY created_at DESC, sequence DESC LIMIT 500",
            (job.name, job.mode, msgspec.json.encode(job.mode_arguments).decode(), job.num_nodes),
        )
        took: dict[str, list[float]] = {}
        for kind, seconds in rows:
            took.setdefault(kind, []).append(seconds)
        if not took:
            return {}
        # Imported when needed: it loads fractions and random, which `status` does without.
        from statistics import median  # noqa: PLC0415

        return {kind: timedelta(seconds=median(each[:_COUNTED])) for kind, each in took.items()}

    def runs(self, *, live_only: bool = False) -> tuple[RunRecord, ...]:
        """List runs, newest first."""
        where = "WHERE stage = 'live'" if live_only else ""
        rows = self._read(f"SELECT * FROM runs {where} ORDER BY created_at DESC, rowid DESC")  # noqa: S608
        return tuple(_run(row) for row in rows)

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run by its id."""
        rows = self._read("SELECT * FROM runs WHERE run_id = ?", (run_id,))
        return _run(rows[0]) if rows else None

    def intend(self, run_id: str, action: Journaled, at: datetime) -> int:
        """Record an action before it is done, and return the intent's id."""
        subject = getattr(action, "machine_id", run_id)  # an action without a machine acts on the run
        values = (run_id, type(action).__name__, subject, _encode(action), IntentState.OPEN, at.isoformat())
        return self._write(
            "INSERT INTO intents (run_id, kind, subject, payload, state, at) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def revision(self, run_id: str) -> int:
        """Return a number that grows with each action on the run."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM intents WHERE run_id = ?", (run_id,))[0][0])

    def close_intent(self, intent_id: int, state: IntentState, at: datetime, detail: str = "") -> None:
        """Record the outcome of an intent."""
        self._write(
            "UPDATE intents SET state = ?, settled_at = ?, detail = ? WHERE id = ?",
            (state, at.isoformat(), detail, intent_id),
        )

    def intents(self, run_id: str) -> tuple[Intent, ...]:
        """List the run's intents, oldest first."""
        rows = self._read("SELECT * FROM intents WHERE run_id = ? ORDER BY id", (run_id,))
        return tuple(_intent(row) for row in rows)

    def open_intents(self, run_id: str) -> tuple[Intent, ...]:
        """List the intents whose outcome is unknown."""
        return tuple(intent for intent in self.intents(run_id) if intent.state is IntentState.OPEN)

    def put_machine(self, machine: Machine) -> None:
        """Record a machine's current state; it bills from its creation."""
        self._write(
            "INSERT INTO machines (machine_id, run_id, record) VALUES (?, ?, ?)"
            " ON CONFLICT (machine_id) DO UPDATE SET record = excluded.record, ended_at = NULL",
            (machine.id, machine.run_id, _encode(machine)),
        )

    def record_machine_end(self, machine_id: str, at: datetime) -> None:
        """Record that the provider confirmed a machine's end; its billing stops."""
        self._write(
            "UPDATE machines SET ended_at = ? WHERE machine_id = ? AND ended_at IS NULL",
            (at.isoformat(), machine_id),
        )

    def machines(self, run_id: str | None = None, *, live_only: bool = False) -> tuple[Machine, ...]:
        """List machines, oldest first."""
        rows = self._machine_rows(run_id)
        return tuple(_decode(row["record"], Machine) for row in rows if not (live_only and row["ended_at"]))

    def rentals(self, run_id: str | None = None) -> tuple[Rental, ...]:
        """List everything that has been billed, oldest first."""
        paid = self._paid_once(run_id)
        rentals = [_rental(row, paid.pop(row["machine_id"], PaidOnce())) for row in self._machine_rows(run_id)]
        return (*rentals, *(once.as_rental(machine_id) for machine_id, once in paid.items()))

    @contextmanager
    def lock(self, run_id: str, *, wait: timedelta = timedelta(0)) -> Iterator[None]:
        """Lock the run against other commands; the operating system releases the lock of a process that dies.

        Raises:
            ConflictError: another command holds it.
        """
        taken = ConflictError(
            f"another kedge command is at work on run {run_id}",
            why="two commands at once could rent two machines for one run",
            fix="wait for it or end it with Ctrl-C, then try again",
        )
        with hold(self._locks / run_id, self._clock, taken, within=wait):
            yield

    def _paid_once(self, run_id: str | None) -> dict[str, PaidOnce]:
        rows = self._read(
            f"SELECT subject, payload, at FROM intents WHERE {PAID_ONCE} AND run_id = coalesce(?, run_id) ORDER BY id",  # noqa: S608
            (run_id,),
        )
        return add_up((row["subject"], row["payload"], row["at"]) for row in rows)

    def _machine_rows(self, run_id: str | None) -> Sequence[sqlite3.Row]:
        if run_id is None:
            return self._read("SELECT * FROM machines ORDER BY rowid")
        return self._read("SELECT * FROM machines WHERE run_id = ? ORDER BY rowid", (run_id,))

    def _read(self, sql: str, values: tuple[Any, ...] = ()) -> Sequence[sqlite3.Row]:
        return self._db.execute(sql, values).fetchall()

    def _write(self, sql: str, values: tuple[Any, ...]) -> int:
        with self._transaction():
            return self._db.execute(sql, values).lastrowid or 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # Takes the write lock at once, because a transaction that began by reading can't wait for another writer.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        with self._transaction():
            version = self._version()
            if version > len(MIGRATIONS):
                raise KedgeError(
                    f"the ledger {self._path} was written by a newer kedge",
                    why=f"its schema has version {version}; this kedge knows {len(MIGRATIONS)}",
                    fix="upgrade kedge",
                )
            for migrate in MIGRATIONS[version:]:
                migrate(self._db)
            self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _version(self) -> int:
        return int(self._read("PRAGMA user_version")[0][0])


def _encode(record: LaunchSpec | Machine | Journaled) -> str:
    return msgspec.json.encode(record).decode()


def _decode(text: str, kind: type[_Record]) -> _Record:
    return decode_json(text, kind)


def _run(row: sqlite3.Row) -> RunRecord:
    return RunRecord(
        spec=_decode(row["spec"], LaunchSpec),
        stage=RunStage(row["stage"]),
        outcome=row["outcome"],
        created_at=datetime.fromisoformat(row["created_at"]),
        ended_at=datetime.fromisoformat(row["ended_at"]) if row["ended_at"] else None,
    )


def _intent(row: sqlite3.Row) -> Intent:
    return Intent(
        id=row["id"],
        run_id=row["run_id"],
        kind=row["kind"],
        subject=row["subject"],
        state=IntentState(row["state"]),
        at=datetime.fromisoformat(row["at"]),
        detail=row["detail"],
        payload=row["payload"],
    )


def _rental(row: sqlite3.Row, once: PaidOnce) -> Rental:
    machine = _decode(row["record"], Machine)
    return Rental(
        machine_id=machine.id,
        usd_per_hour=machine.usd_per_hour,
        since=machine.created_at,
        until=datetime.fromisoformat(row["ended_at"]) if row["ended_at"] else None,
        once_usd=once.usd,
        at_least=machine.billed_for_at_least,
    )
