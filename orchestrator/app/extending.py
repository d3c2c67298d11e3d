"""The use case that moves the deadline of a run's machines."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import msgspec

from orchestrator.adapters.jobfile.values.limits import parse_limited_duration
from orchestrator.app.root import App
from orchestrator.core.actions import ExtendDeadline
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import IntentState, RunRecord, RunStage
from orchestrator.core.plan import Plan
from orchestrator.core.planning.extend import DeadlinesSeen, MachineSeen, Move, plan_extension
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.structs import decode_json
from orchestrator.engine.observing.observe import find_machines
from orchestrator.engine.observing.questions import ask_each

_FARTHEST = timedelta(days=366)
_CLOCK = re.compile(r"\d{1,2}:\d{2}")
_WRITE = "write a time of this computer's clock, such as 18:00, or a date and a time, such as 2026-11-24T18:00"


def read_move(by: str | None, until: str | None, now: datetime) -> Move:
    """Read what was asked for: `2h`, or `18:00` of this computer's clock, which is tomorrow if it is over today.

    Raises:
        BadRequestError: neither or both are given, or one can't be read.
    """
    if (by is None) == (until is None):
        raise BadRequestError(
            "say how long to extend the run, or until when",
            why="both are given, and they may differ" if by is not None else "",
            fix="write for example `kedge extend RUN 2h`, or `kedge extend RUN --until 18:00`",
        )
    if by is not None:
        return Move(by=parse_limited_duration(by))
    at = _read_until(until or "", now)
    if at - now > _FARTHEST:
        raise BadRequestError(f"{until!r} is more than a year away", fix=_WRITE)
    return Move(until=at)


def _read_until(text: str, now: datetime) -> datetime:
    try:
        if not _CLOCK.fullmatch(text.strip()):
            # Without an offset it is meant on this computer's clock, as `astimezone` reads it.
            return datetime.fromisoformat(text.strip()).astimezone(UTC)
        hour, minute = text.strip().split(":")
        today = now.astimezone().date()
        at = datetime.combine(today, time(int(hour), int(minute)))
        if at.astimezone(UTC) <= now:
            at = datetime.combine(today + timedelta(days=1), at.time())
        return at.astimezone(UTC)
    except (ValueError, OverflowError) as err:
        raise BadRequestError(f"{text!r} is not a time", fix=_WRITE) from err


def extension_plan(
    app: App, record: RunRecord, move: Move, budget_usd: Decimal | None = None
) -> tuple[LaunchSpec, Plan, tuple[str, ...]]:
    """Plan a move of the deadline; a move that an earlier command has left is finished first.

    If that one asked for the same, it is all that is done: the same command again finishes it.

    Returns:
        The run, the plan, and what was found before planning.

    Raises:
        BadRequestError: the run is over, or has nothing whose deadline could be moved.
        UnreachableError: a machine doesn't answer.
        OverBudgetError: until the new deadline the run can cost more than its budget.
    """
    interrupted = _interrupted_moves(app, record)
    found = app.reconcile(record)
    record = app.named_run(record.run_id)
    if record.stage is not RunStage.LIVE:
        raise BadRequestError(f"run {record.run_id} is over", fix="launch it again with `kedge launch`")
    budget = record.spec.job.budget_usd if budget_usd is None else budget_usd
    spec = replace(record.spec, job=msgspec.structs.replace(record.spec.job, budget_usd=budget))
    if move.by is not None and any(each.by == move.by for each in _finished(app, record, interrupted)):
        return spec, Plan(run_id=record.run_id, actions=(), notes=("this was asked for, and is finished now",)), found
    plan = plan_extension(spec, _see(app, record), move)
    return spec, _with_local_time(plan), found


def _interrupted_moves(app: App, record: RunRecord) -> dict[int, ExtendDeadline]:
    return {
        intent.id: decode_json(intent.payload, ExtendDeadline)
        for intent in app.ledger.open_intents(record.run_id)
        if intent.kind == ExtendDeadline.__name__
    }


def _finished(app: App, record: RunRecord, moves: dict[int, ExtendDeadline]) -> list[ExtendDeadline]:
    done = {intent.id for intent in app.ledger.intents(record.run_id) if intent.state is IntentState.DONE}
    return [action for number, action in moves.items() if number in done]


def _see(app: App, record: RunRecord) -> DeadlinesSeen:
    world = app.world(record.spec.provider)
    revision = app.ledger.revision(record.run_id)
    machines = find_machines(world, record.run_id)
    answers = ask_each([(world, machine) for machine in machines])
    now = app.clock.now()
    return DeadlinesSeen(
        now=now,
        machines=tuple(
            MachineSeen(machine=machine, report=answer.report, problem=answer.problem)
            for machine, answer in zip(machines, answers, strict=True)
        ),
        spent_usd=spent_usd(app.ledger.rentals(record.run_id), now),
        caveats=world.provider.caveats,
        revision=revision,
    )


def _with_local_time(plan: Plan) -> Plan:
    if plan.deadline_at is None or not plan.actions:
        return plan
    here = f"{plan.deadline_at.astimezone():%F %H:%M}"
    return replace(plan, notes=(f"the new deadline is {here} on this computer's clock", *plan.notes))
