"""Reads the modes of runs from their specifications, in SQL: the present one and those that a run has left."""

from __future__ import annotations

_COUNT = "coalesce(json_array_length({}, '$.earlier'), 0)"

_IS_SAME_MODE = f"{_COUNT.format('runs.spec')} = {_COUNT.format('excluded.spec')}"

OPEN_RUN = f"""
    INSERT INTO runs (run_id, job, mode, spec, stage, created_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE
    SET spec = excluded.spec, mode = excluded.mode, stage = excluded.stage, ended_at = NULL,
        outcome = CASE WHEN {_IS_SAME_MODE} THEN outcome ELSE '' END,
        took_seconds = CASE WHEN {_IS_SAME_MODE} THEN took_seconds ELSE 0 END
"""  # noqa: S608 - the condition is written here
"""Records a new run, or the changed specification of an existing one; in another mode, it has no outcome yet."""

DURATIONS = """
    SELECT job, mode, outcome, took_seconds, created_at, 1000000 AS sequence FROM runs
    UNION ALL
    SELECT runs.job, json_extract(left.value, '$.mode'), json_extract(left.value, '$.outcome'),
        coalesce(json_extract(left.value, '$.took_seconds'), json_extract(left.value, '$.seconds')),
        runs.created_at, left.key
    FROM runs, json_each(runs.spec, '$.earlier') AS left
"""
"""Selects each mode that a run has had: its job, name, outcome, how long it took, and its order.

SQLite has `->>` since 3.38; the Python of Ubuntu 22.04 has 3.37.
"""
