"""The use case of `kedge sync-code`: sends code to a run's machines, as quickly as possible.

Only the code can change, so there is nothing to plan. For one machine, neither the planner nor a provider is loaded:
most of the remaining time is the round trip to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from orchestrator.app.root import App
from orchestrator.core.actions import SendCode
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.transfers import Progress
from orchestrator.engine.journal import journaled

_OTHERS = timedelta(seconds=5)


def send_code(app: App, record: RunRecord, progress: Progress) -> str:
    """Bring the code on the run's machines to the state on the laptop, and return the content hash.

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
    machines = app.machines(record)
    described = job.workdir or "the bundled trainer"
    actions = [SendCode(machine_id=machine.id, source=described, files=0, bytes=0) for machine in machines]
    with app.ledger.lock(record.run_id, wait=_OTHERS):
        if len(machines) > 1:
            _send_together(app, record, actions, machines, progress)
            return source.summary().hash
        (machine,), (action,) = machines, actions
        with journaled(app.ledger, app.clock, record.run_id, action) as entry:
            entry.note = source.send(app.remote(machine), machine, progress)
    return entry.note


def _send_together(
    app: App, record: RunRecord, actions: Sequence[SendCode], machines: Sequence[Machine], progress: Progress
) -> None:
    # Imported when needed, because one machine doesn't need it.
    from orchestrator.engine.events import ActionProgressed, Event  # noqa: PLC0415 - as the comment says
    from orchestrator.engine.steps.sending import send_together  # noqa: PLC0415

    def moved(event: Event) -> None:
        if isinstance(event, ActionProgressed):
            progress(event.done, event.total)

    world, receivers = app.world(record.spec.provider), {machine.id: machine for machine in machines}
    send_together(world, record.spec.job, actions, receivers, moved)
