"""The use case that people wait for: code to a machine that is there.

Nothing has to be planned for it, since nothing but the code can change, so neither the planner nor a provider is
loaded: most of what is left is the way to the machine and back.
"""

from __future__ import annotations

from datetime import timedelta

from orchestrator.app.root import App
from orchestrator.core.actions import SendCode
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import IntentState, RunRecord
from orchestrator.core.ports import Progress

_OTHERS = timedelta(seconds=5)


def send_code(app: App, record: RunRecord, progress: Progress) -> str:
    """Bring the machine's code to the laptop's state, and return the content hash.

    Raises:
        BadRequestError: the job has no code.
        ConflictError: another command is at work on the run.
        UnreachableError: the machine can't be reached; it has the old tree or the new one, whole.
    """
    job = record.spec.job
    source = app.sender(record)
    if source is None:
        raise BadRequestError(
            f"the job of {record.run_id} sends no code", fix="name its folder with `workdir: .` in the job file"
        )
    machine = app.machine(record)
    action = SendCode(machine_id=machine.id, source=job.workdir or "the bundled trainer", files=0, bytes=0)
    with app.ledger.lock(record.run_id, wait=_OTHERS):
        intent = app.ledger.intend(record.run_id, action, app.clock.now())
        try:
            content_hash = source.send(app.remote(machine), machine, progress)
        except BaseException as err:
            app.ledger.settle(intent, IntentState.FAILED, app.clock.now(), type(err).__name__)
            raise
        app.ledger.settle(intent, IntentState.DONE, app.clock.now(), content_hash)
    return content_hash
