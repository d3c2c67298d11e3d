"""Observes a run before it is planned: its machines, code, results, and the offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import KedgeError, NonsenseError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Observed, usable_machine
from orchestrator.core.protocol.report import Command, MachineReport, RunState
from orchestrator.core.values.cost import spent_usd
from orchestrator.engine import agent_client
from orchestrator.engine.observing.uploads import last_upload_of, read_uploads
from orchestrator.engine.world import World


def observe_run(world: World, spec: LaunchSpec, *, code: bool = True, offers: bool = True) -> Observed:
    """Observe a run's machines, the laptop's code, and what is for sale.

    A run that hasn't begun has no machine and no results, so its provider isn't asked for them. A plan therefore needs
    no account if the offers come from a snapshot.

    Args:
        world: the run's ports.
        spec: the run.
        code: read the laptop's code.
        offers: list what is for sale, if the run has no machine.
    """
    now = world.clock.now()
    revision = world.ledger.revision(spec.run_id)
    has_begun = world.ledger.run(spec.run_id) is not None
    machines = find_machines(world, spec.run_id) if has_begun else ()
    report = ask_one(world, machines)
    usable = usable_machine(machines, report)
    source = world.code_source(spec.job) if code else None
    return Observed(
        now=now,
        offers=tuple(world.provider.offers(spec.resources)) if offers and usable is None else (),
        machines=machines,
        machines_before=_machines_before(world, spec.run_id, machines),
        report=report,
        code=source.summary() if source else None,
        spent_usd=spent_usd(world.ledger.rentals(spec.run_id), now),
        usual_duration=world.ledger.usual_duration(spec.job.name, spec.job.mode),
        offers_basis=world.provider.offers_basis,
        can_start_at_boot=world.provider.can_start_at_boot,
        keeps_results=world.store is not None,
        ends_by_itself=world.provider.ends_by_itself,
        caveats=(*world.provider.caveats, *world.store_caveats),
        has_results=has_begun and world.has_results(spec.run_id),
        outcome=_last_outcome(world, spec.run_id) if has_begun else None,
        revision=revision,
    )


def find_machines(world: World, run_id: str) -> tuple[Machine, ...]:
    """List a run's machines at its provider."""
    return tuple(machine for machine in world.provider.machines() if machine.run_id == run_id)


def ask_one(world: World, machines: Sequence[Machine]) -> MachineReport | None:
    """Request a report from a run's machines, usable ones first; return the first one, or None if none answers."""
    in_turn = sorted(machines, key=lambda machine: machine.state is MachineState.UNKNOWN)
    return next((seen for machine in in_turn if (seen := ask(world, machine))), None)


def ask(world: World, machine: Machine) -> MachineReport | None:
    """Request a machine's report; None if it doesn't answer, or its answer is invalid."""
    return question(world, machine).report


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """A machine's report, or why there is none."""

    report: MachineReport | None = None
    problem: str = ""


def question(world: World, machine: Machine) -> MachineAnswer:
    """Request a machine's report; a failure is returned, never raised."""
    silent = MachineAnswer(problem=f"machine {machine.id} doesn't answer")
    if not machine.may_answer:
        return silent
    try:
        return MachineAnswer(report=agent_client.report(world.connector.connect(machine.require_address()), machine))
    except NonsenseError as err:
        return MachineAnswer(problem=f"machine {machine.id} sent an invalid answer: {err.why}")
    except (KedgeError, OSError):
        # For example, a full disk on this computer prevents storing the host key. Machines must still be ended then.
        return silent


def why_ended(world: World, machine_id: str) -> MachineEnd | None:
    """Return what has ended a machine, or is ending it; None if the provider doesn't know or doesn't answer."""
    try:
        return world.provider.why_ended(machine_id)
    except KedgeError:
        return None


def rented_offer(world: World, run_id: str, machine_id: str) -> Offer | None:
    """Return the offer of the last request for a machine, whoever made it; None if none is recorded."""
    asked = [
        each
        for each in world.ledger.intents(run_id)
        if each.subject == machine_id and each.kind == CreateMachine.__name__
    ]
    return next(iter(msgspec.json.decode(asked[-1].payload, type=CreateMachine).offers), None) if asked else None


def find_failed_offer(world: World, run_id: str, there: tuple[Machine, ...]) -> Offer | None:
    """Return the offer of the run's latest machine if its provider couldn't start it; otherwise None.

    Args:
        world: the run's ports.
        run_id: the run; its ledger was reconciled before.
        there: its machines at the provider.
    """
    machines = world.ledger.machines(run_id)
    if not machines:
        return None
    latest = machines[-1]
    is_ending = any(each.id == latest.id and each.state is MachineState.ENDING for each in there)
    end = why_ended(world, latest.id) if is_ending else latest.end
    return rented_offer(world, run_id, latest.id) if end is not None and end.by is EndedBy.START else None


def latest_command(world: World, run_id: str) -> Command | None:
    """Return the command's state that the run's latest machine uploaded; None if only earlier machines uploaded one."""
    machines = world.ledger.machines(run_id)
    if not machines:
        return None
    last = last_upload_of(world, run_id, machines[-1].id)
    return last.command if last else None


def _last_outcome(world: World, run_id: str) -> RunState | None:
    """Return how the command ended: from the ledger, which may know more, else from the object store."""
    record = world.ledger.run(run_id)
    if record is not None and record.outcome == RunState.SUCCEEDED:
        return RunState.SUCCEEDED
    last = read_uploads(world, run_id).last
    return last.command.state if last else None


def _machines_before(world: World, run_id: str, there: tuple[Machine, ...]) -> int:
    """Return the highest number of all machines that the run has had."""
    names = {intent.subject for intent in world.ledger.intents(run_id)} | {machine.id for machine in there}
    names |= {machine.id for machine in world.ledger.machines(run_id)}
    numbers = [name.removeprefix(f"{run_id}-m") for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=0)
