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

_TYPE = """
    (SELECT CASE WHEN count(DISTINCT json_extract(payload, '$.offers[0].instance_type')) = 1
        THEN max(json_extract(payload, '$.offers[0].instance_type')) ELSE '' END
    FROM intents
    WHERE intents.id IN (
        SELECT max(asked.id) FROM intents AS asked JOIN machines ON asked.subject = machines.machine_id
        WHERE asked.run_id = runs.run_id AND asked.kind = 'CreateMachine'
        GROUP BY asked.subject))
"""
"""Of each machine, the last offer that was requested counts; those before it had no capacity."""

DURATIONS = f"""
    SELECT job, mode, coalesce(json_extract(spec, '$.job.mode_arguments'), '[]') AS arguments,
        coalesce(json_extract(spec, '$.job.num_nodes'), 1) AS num_nodes, {_TYPE} AS instance_type,
        outcome, took_seconds, created_at, 1000000 AS sequence
    FROM runs
    UNION ALL
    SELECT runs.job, json_extract(left.value, '$.mode'), coalesce(json_extract(left.value, '$.arguments'), '[]'),
        coalesce(json_extract(runs.spec, '$.job.num_nodes'), 1), {_TYPE},
        json_extract(left.value, '$.outcome'),
        coalesce(json_extract(left.value, '$.took_seconds'), json_extract(left.value, '$.seconds')),
        runs.created_at, left.key
    FROM runs, json_each(runs.spec, '$.earlier') AS left
"""  # noqa: S608 - the parts are written here
"""Selects each mode that a run has had: its job, name, arguments, the number and the type of the run's machines (empty
if they were of several), its outcome, how long it took, and its order.

SQLite has `->>` since 3.38; the Python of Ubuntu 22.04 has 3.37.
"""
