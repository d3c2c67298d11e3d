"""Reads names from the ledger for shell completion: creates nothing, migrates nothing and waits for nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

_MOST = 100
_PATIENCE_S = 0.1


def run_names(state_dir: Path, *, live_only: bool) -> tuple[tuple[str, str], ...]:
    """List runs and their states, live runs first, newest first; empty without a ledger."""
    with suppress(sqlite3.Error):
        return tuple(_read(state_dir / "ledger.db", live_only=live_only))
    return ()


def task_names(state_dir: Path, run: str | None) -> tuple[str, ...]:
    """List the names of a run's tasks, or of all live runs'; empty without a ledger."""
    with suppress(sqlite3.Error):
        return tuple(dict.fromkeys(_read_tasks(state_dir / "ledger.db", run)))
    return ()


def _read(path: Path, *, live_only: bool) -> Iterator[tuple[str, str]]:
    where = "WHERE stage = 'live'" if live_only else ""
    sql = f"""SELECT run_id, coalesce(nullif(outcome, ''), stage) FROM runs {where}
        ORDER BY stage = 'live' DESC, created_at DESC, rowid DESC LIMIT {_MOST}"""  # noqa: S608
    with closing(_open(path)) as ledger:
        yield from ((str(run), str(how)) for run, how in ledger.execute(sql))


def _read_tasks(path: Path, run: str | None) -> Iterator[str]:
    chosen = ("run_id = ?", (run,)) if run is not None else ("stage = 'live'", ())
    sql = f"""SELECT json_extract(task.value, '$.name') FROM runs, json_each(spec, '$.job.tasks') AS task
        WHERE {chosen[0]} AND json_extract(task.value, '$.name') <> '' ORDER BY created_at DESC LIMIT {_MOST}"""  # noqa: S608
    with closing(_open(path)) as ledger:
        yield from (str(name) for (name,) in ledger.execute(sql, chosen[1]))


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_PATIENCE_S)
