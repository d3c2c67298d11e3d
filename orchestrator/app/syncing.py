"""The use case of `kedge sync`: sends code to an existing machine, as quickly as possible.

Only the code can change, so there is nothing to plan, and neither the planner nor a provider is loaded. Most of the
remaining time is the round trip to the machine.
"""

from __future__ import annotations

from datetime import timedelta

from orchestrator.app.root import App
from orchestrator.core.actions import SendCode
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.transfers import Progress
from orchestrator.engine.journal import journaled

_OTHERS = timedelta(seconds=5)


def send_code(app: App, record: RunRecord, progress: Progress) -> str:
    """Bring the code on the machine to the state on the laptop, and return the content hash.

    Raises:
        BadRequestError: the job has no code.
        ConflictError: another command is acting on the run.
        UnreachableError: the machine can't be reached; it has either the old tree or the new one, complete.
    """
    job = record.spec.job
    source = app.sender(record)
    if source is None:
        raise BadRequestError(
            f"the job of {record.run_id} sends no code", fix="name its folder with `workdir: .` in the job file"
        )
    machine = app.machine(record)
    action = SendCode(machine_id=machine.id, source=job.workdir or "the bundled trainer", files=0, bytes=0)
    lock = app.ledger.lock(record.run_id, wait=_OTHERS)
    with lock, journaled(app.ledger, app.clock, record.run_id, action) as entry:
        entry.note = source.send(app.remote(machine), machine, progress)
    return entry.note
