"""The versions of the ledger's schema, each made from the one before."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec


def create_tables(db: sqlite3.Connection) -> None:
    """Make version 1."""
    db.execute(
        """
        CREATE TABLE runs (
            run_id TEXT PRIMARY KEY, job TEXT NOT NULL, mode TEXT NOT NULL, spec TEXT NOT NULL,
            stage TEXT NOT NULL, outcome TEXT NOT NULL DEFAULT '', took_seconds REAL NOT NULL DEFAULT 0,
            created_at TEXT NOT NULL, ended_at TEXT
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE machines (
            machine_id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs, record TEXT NOT NULL,
            ended_at TEXT
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE intents (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs,
            kind TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
            state TEXT NOT NULL, at TEXT NOT NULL, settled_at TEXT, detail TEXT NOT NULL DEFAULT ''
        ) STRICT
        """
    )


def turn_commands_into_tasks(db: sqlite3.Connection) -> None:
    """Make version 2: a job has tasks instead of one command."""
    for run_id, text in db.execute("SELECT run_id, spec FROM runs").fetchall():
        spec = json.loads(text)
        spec["job"] = _with_tasks(spec["job"])
        db.execute("UPDATE runs SET spec = ? WHERE run_id = ?", (msgspec.json.encode(spec).decode(), run_id))
    # A process of the version before, started before the upgrade, takes every run for a plain machine: it must not act.
    db.execute(
        """
        CREATE TRIGGER runs_have_tasks BEFORE INSERT ON runs WHEN instr(NEW.spec, '"tasks":') = 0
        BEGIN SELECT RAISE(ABORT, 'a newer kedge has taken over this ledger: run the command again'); END
        """
    )


def _with_tasks(job: dict[str, Any]) -> dict[str, Any]:
    moved = {key: job.get(key) or "" for key in ("run", "resume", "resume_args", "checkpoints")}
    task = {**moved, "outputs": job.get("outputs", []), **{key: job[key] for key in _SHARED if key in job}}
    kept = {key: value for key, value in job.items() if key not in (*moved, "outputs")}
    return {**kept, "tasks": [task] if task["run"] else []}


_SHARED = ("supervisor", "expect")
"""Keys of the job that are the defaults of its tasks."""

MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (create_tables, turn_commands_into_tasks)
"""One function for each version of the schema; `user_version` counts those that have run."""
