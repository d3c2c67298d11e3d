"""Requests reports from machines: from many at once, so that a slow or silent machine doesn't delay the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from orchestrator.core.errors import KedgeError, NonsenseError
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.report import MachineReport
from orchestrator.engine import agent_client
from orchestrator.engine.observing.at_once import Calls, call_each
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """A machine's report, or why there is none."""

    report: MachineReport | None = None
    problem: str = ""


_Question = tuple[World, Machine]


def ask(world: World, machine: Machine) -> MachineReport | None:
    """Request a machine's report; None if it doesn't answer, or its answer is invalid."""
    return question(world, machine).report


def question(world: World, machine: Machine) -> MachineAnswer:
    """Request a machine's report; a failure is returned, never raised."""
    return _question(machine, lambda: world.connector.connect(machine.require_address()))


def _question(machine: Machine, connect: Callable[[], Remote]) -> MachineAnswer:
    silent = MachineAnswer(problem=f"machine {machine.id} doesn't answer")
    if not machine.may_answer:
        return silent
    try:
        return MachineAnswer(report=agent_client.report(connect(), machine))
    except NonsenseError as err:
        return MachineAnswer(problem=f"machine {machine.id} sent an invalid answer: {err.why}")
    except (KedgeError, OSError):
        # For example, a full disk on this computer prevents storing the host key. Machines must still be ended then.
        return silent


class EarlyQuestions:
    """Requests reports over connections that are open, while providers are asked whether the machines still exist.

    Neither provider nor ledger is used for that: other threads use them.
    """

    def __init__(self) -> None:
        self._begun: Calls[MachineAnswer] | None = None
        self._asked: dict[tuple[str, SshAddress], Future[MachineAnswer]] = {}

    def ask(self, questions: Sequence[_Question]) -> None:
        """Request the reports of those machines to which an earlier command has left a connection."""
        open_now = [(world, machine, remote) for world, machine in questions if (remote := _opened(world, machine))]
        calls = [partial(_question, machine, partial(_same, remote)) for _, machine, remote in open_now]
        self._begun = Calls(calls, lambda: _cancel(questions))
        for (_, machine, _), future in zip(open_now, self._begun.futures, strict=True):
            self._asked[machine.id, machine.require_address()] = future

    def ask_rest(self, questions: Sequence[_Question]) -> list[MachineAnswer]:
        """Return the answers to these questions, in their order; those that weren't asked yet are asked now."""
        asked = [self._find(machine) for _, machine in questions]
        others = iter(ask_each([each for each, future in zip(questions, asked, strict=True) if future is None]))
        if self._begun is not None:
            self._begun.results(future for future in asked if future is not None)
        return [next(others) if future is None else future.result() for future in asked]

    def _find(self, machine: Machine) -> Future[MachineAnswer] | None:
        """Return the request that was made at the machine's present address; of one that is ending, none counts."""
        if machine.address is None or not machine.may_answer:
            return None
        return self._asked.get((machine.id, machine.address))


def _same(remote: Remote) -> Remote:
    return remote


def _opened(world: World, machine: Machine) -> Remote | None:
    if not machine.may_answer or machine.address is None:
        return None
    try:
        return world.connector.opened(machine.address)
    except (KedgeError, OSError):
        return None


def _cancel(questions: Sequence[_Question]) -> None:
    for world, _ in questions:
        world.connector.close()


def ask_each(questions: Sequence[_Question]) -> list[MachineAnswer]:
    """Request a report from each machine, all at the same time; the answers are in the order of the questions.

    Ctrl-C cancels all requests at once, whatever the machines do.
    """
    return call_each([partial(question, *each) for each in questions], lambda: _cancel(questions))
