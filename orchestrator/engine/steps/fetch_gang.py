"""Fetches the results of a run's several machines to the laptop as one whole, and verifies the copy.

Each machine has what it has written itself. It comes from the machine, or else from the machine's place in the object
store (core/protocol/parts.py says where each file goes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine, newest_gang
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.parts import NODES, divide, folder_of
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import Arrival
from orchestrator.engine import agent_client
from orchestrator.engine.observing.questions import ask
from orchestrator.engine.steps.fetch import (
    TRIES,
    Fetched,
    describe_changing,
    describe_copy,
    differing,
    fetch_results,
    is_at_work,
    leave_to_store,
    time_to_copy,
)
from orchestrator.engine.steps.wanted import NO_FOLDERS, Wanted
from orchestrator.engine.world import World

_FOLLOWS_HEAD = timedelta(minutes=1)
"""How long the other machines' commands may take to end after the head's."""
_POLL = timedelta(milliseconds=200)

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What is fetched."""

    world: World
    wanted: Wanted


@dataclass(slots=True, kw_only=True)
class _Source:
    """Where one machine's results come from.

    Attributes:
        remote: a connection to it; None if they come from its place in the object store.
        report: the machine's, from before the copy.
        why: it isn't asked itself; empty if it is, or if it is gone.
    """

    machine: Machine
    remote: Remote | None = None
    report: MachineReport | None = None
    why: str = ""

    @property
    def is_at_work(self) -> bool:
        """Whether a task runs on it."""
        return self.report is not None and is_at_work(self.report, NO_FOLDERS)


class _BrokenSourceError(Exception):
    """The results of one machine can't be had from it."""

    def __init__(self, rank: int, error: KedgeError) -> None:
        super().__init__(str(error))
        self.rank = rank
        self.error = error


def fetch_from_all(world: World, machine: Machine, wanted: Wanted, *, without: Collection[str] = ()) -> Fetched:
    """Copy the results of all machines of a run into one folder.

    Args:
        world: the run's ports.
        machine: the head, or the only machine.
        wanted: what is fetched.
        without: machines that may be left out if they don't answer and have uploaded nothing.

    Raises:
        KedgeError: a machine has results that can't be had now; there is nothing to fetch; or a copy differs from its
            source.
    """
    gang = newest_gang(world.ledger.machines(machine.run_id))
    if len(gang) == 1:
        return fetch_results(world, machine, wanted)
    order = _Order(world=world, wanted=wanted)
    sources = {machine.rank: _find(order, machine, without) for machine in gang}
    lost = [machine.id for machine in gang if sources[machine.rank] is None]
    there = {rank: source for rank, source in sources.items() if source is not None}
    if not there:
        run_id = gang[0].run_id
        raise UnreachableError(
            f"there are no results of run {run_id}",
            why="none of its machines answers, and they have uploaded nothing",
            fix=f"see `kedge status {run_id}`; `kedge resume {run_id}` gives it machines",
        )
    _await_ends(order, there)
    reports = {rank: source.report for rank, source in there.items() if source.report is not None}
    wanted = leave_to_store(world, machine.run_id, wanted, reports.get(0))
    files, arrival, rest = _copy_until_same(replace(order, wanted=wanted), there)
    is_live = any(is_at_work(report, wanted.folders) for report in reports.values())
    if arrival.different and not is_live:
        raise differing(arrival)
    changing = describe_changing(arrival) if arrival.different else f"; {STILL_AT_WORK}" if is_live else ""
    over = {rank: report for rank, report in reports.items() if report.command.state.is_over}
    if wanted.folders or wanted.choice.only or arrival.different:
        over = {}
    return Fetched(
        note="; ".join([_describe(files, arrival, gang), *_remarks(there.values(), lost)]) + rest + changing,
        final=over[0].command if 0 in over else None,
        report=reports.get(0),
        ended=() if rest else tuple(there[rank].machine.id for rank in over),
    )


def _find(order: _Order, machine: Machine, without: Collection[str]) -> _Source | None:
    """Return where a machine's results come from; None if it is gone, or may be left out, and has uploaded nothing."""
    world = order.world
    there = world.provider.describe(machine.id)
    if there is not None and there.may_answer:
        try:
            remote = world.connector.connect(there.require_address())
            return _Source(machine=there, remote=remote, report=agent_client.report(remote, there))
        except KedgeError as err:
            if _has_uploaded(order, machine):
                return _Source(machine=machine, why=err.what)
            if machine.id not in without:
                raise
            return None
    return _Source(machine=machine) if _has_uploaded(order, machine) else None


def _has_uploaded(order: _Order, machine: Machine) -> bool:
    store = order.world.store
    return store is not None and bool(store.manifest(machine.run_id, rank=machine.rank))


def _await_ends(order: _Order, sources: Mapping[int, _Source]) -> None:
    """Wait until the commands of the other machines have ended, too: they stay until the head's has."""
    head = sources.get(0)
    if head is None or head.report is None or not head.report.command.state.is_over:
        return
    waiting = [source for source in sources.values() if source.is_at_work]

    def have_ended() -> bool:
        for source in waiting:
            source.report = ask(order.world, source.machine) or source.report
        return not any(source.is_at_work for source in waiting)

    if waiting:
        order.world.poll_until(have_ended, _FOLLOWS_HEAD, order.world.clock, first=_POLL, longest=_POLL)


def _copy_until_same(order: _Order, sources: dict[int, _Source]) -> tuple[list[ResultFile], Arrival, str]:
    """Copy everything, again if a running command has changed something.

    Returns:
        The files, what came of them, and what isn't fetched.
    """
    left = TRIES
    while True:
        try:
            files, arrival, rest = _copy_whole(order, sources)
        except _BrokenSourceError as broken:
            source = sources[broken.rank]
            # The machine may spoil a copy on purpose. What it has uploaded can still be fetched.
            if source.remote is None or not _has_uploaded(order, source.machine):
                raise broken.error from broken
            sources[broken.rank] = _Source(machine=source.machine, report=source.report, why=broken.error.what)
            continue
        left -= 1
        if not arrival.different or not left:
            return files, arrival, rest


def _copy_whole(order: _Order, sources: Mapping[int, _Source]) -> tuple[list[ResultFile], Arrival, str]:
    there = {rank: _of(source, lambda each: _list(order, each)) for rank, source in sources.items()}
    listed = [file for each in there.values() for file in each]
    chosen = order.wanted.choose(listed)
    rest, paths = order.wanted.describe_rest(listed, chosen), {file.path for file in chosen}
    parts = divide({rank: [file for file in each if file.path in paths] for rank, each in there.items()})
    files: list[ResultFile] = []
    whole = Arrival()
    for rank, part in parts.items():
        source, folder = sources[rank], folder_of(rank)
        files += (*part.files, *(replace(file, path=f"{folder}/{file.path}") for file in part.apart))
        whole = whole.plus(_copy(order, source, part.files, order.wanted.destination))
        apart = _copy(order, source, part.apart, f"{order.wanted.destination}/{folder}")
        whole = whole.with_folder(folder, apart.plus(Arrival(left_out=part.left_out)))
    return files, whole, rest


def _of(source: _Source, act: Callable[[_Source], _Found]) -> _Found:
    try:
        return act(source)
    except BadRequestError:
        raise
    except KedgeError as err:
        raise _BrokenSourceError(source.machine.rank, err) from err


def _list(order: _Order, source: _Source) -> Sequence[ResultFile]:
    machine, store = source.machine, order.world.store
    if source.remote is not None:
        files = agent_client.manifest(source.remote, machine)
    else:
        files = store.manifest(machine.run_id, rank=machine.rank) if store is not None else ()
    return order.wanted.below_folders(files)


def _copy(order: _Order, source: _Source, files: Sequence[ResultFile], destination: str) -> Arrival:
    """Copy some of a machine's results into a folder."""
    if not files:
        return Arrival()
    world, machine = order.world, source.machine
    if source.remote is None:
        store, paths = world.store, {file.path for file in files}
        assert store is not None  # noqa: S101 - it has listed the files
        return _of(
            source,
            lambda each: store.fetch(
                machine.run_id, destination, order.wanted.progress, rank=each.machine.rank, only=paths
            ),
        )
    return _of(
        source,
        lambda each: world.mover.fetch(
            each.machine,
            f"{each.machine.root}/results",
            destination,
            order.wanted.progress,
            files=files,
            only=True,
            within=time_to_copy(each.machine, world.clock.now()),
        ),
    )


def _describe(files: Sequence[ResultFile], arrival: Arrival, gang: Sequence[Machine]) -> str:
    said = f"{describe_copy(files, arrival)}, of {len(gang)} machines"
    apart = sum(file.path.startswith(f"{NODES}/") for file in files)
    return f"{said}; {apart:,} of them, at the same path as another machine's, are in {NODES}/" if apart else said


def _remarks(sources: Collection[_Source], lost: Sequence[str]) -> list[str]:
    remarks = [f"nothing of {', '.join(lost)}: gone or silent, and has uploaded nothing"] if lost else []
    stored = [source for source in sources if source.remote is None]
    if stored and len(stored) == len(sources) and not any(source.why for source in stored):
        return [*remarks, "from the object store"]
    why = (f" ({source.why})" if source.why else "" for source in stored)
    return [*remarks, *(f"{s.machine.id}'s from the object store{text}" for s, text in zip(stored, why, strict=True))]
