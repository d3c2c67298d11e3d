"""Draws plans and how they ended. It loads rich, which quick commands don't need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.adapters.providers import is_here
from orchestrator.app.results import read_left_behind
from orchestrator.app.root import App
from orchestrator.cli.drawing.checks import check_lines, checks_as_data
from orchestrator.cli.drawing.left_behind import left_behind_lines
from orchestrator.cli.drawing.modes import name_modes, price_lines, prices_as_data
from orchestrator.cli.drawing.render import shorten, to_plain
from orchestrator.cli.drawing.task_states import outcome_lines, outcomes_as_data
from orchestrator.cli.terminal.console import print_folded
from orchestrator.core.action_words import describe, sign
from orchestrator.core.actions import Action, CreateMachine, ExtendDeadline, FetchResults
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.modes import chosen_mode, folders_of
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import RunState
from orchestrator.core.task import Nodes, Task
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_duration, format_usd
from orchestrator.core.values.unsent import describe_unsent
from orchestrator.engine.run_progress import RunProgress

_STYLES = {"+": "bold green", "-": "bold red"}


def print_plan(console: Console, spec: LaunchSpec, plan: Plan, findings: Sequence[str] = ()) -> None:
    """Print a plan's actions, then its price."""
    named = name_modes([chosen_mode(job) for job in (spec.job, *spec.later)])
    console.print(f"Run {plan.run_id} ({spec.job.name}{named}, {spec.provider})", markup=False)
    for finding in findings:
        print_folded(console, f"  found: {finding}")
    for action, text in _action_lines(plan.actions):
        print_signed(console, sign(action), _from_here(text), indent="  ")
    if not plan.actions:
        console.print("  nothing to do", markup=False)
    for line in (*check_lines(plan.checks), *_unsent_lines(plan), *_takes_lines(plan)):
        print_folded(console, f"  {line}")
    if plan.deadline_at is not None and plan.actions:
        for line in (*price_lines(plan.modes), *_price_lines(plan)):
            print_folded(console, f"  {line}")
    for note in plan.notes:
        print_folded(console, f"  note: {note}")


def _action_lines(actions: Sequence[Action]) -> Iterator[tuple[Action, str]]:
    """Describe actions; those that are done on several machines, one after the other, have one line."""
    for text, same in groupby(actions, key=describe):
        first, *others = same
        yield first, f"{text} (each of {len(others) + 1} machines)" if others else text


def print_signed(console: Console, mark: str, text: str, *, indent: str = "") -> None:
    """Print a text with a coloured `+`, `~` or `-` before it."""
    print_folded(console, f"{indent}{mark} {text}", mark=_STYLES.get(mark, "bold yellow"))


def plan_as_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON-ready data."""
    return {
        "run": plan.run_id,
        "actions": [
            {"kind": type(action).__name__, "sign": sign(action), "says": describe(action), **_fields(action)}
            for action in plan.actions
        ],
        "usd_per_hour": plan.usd_per_hour,
        "most_usd_per_hour": plan.most_usd_per_hour,
        "once_usd": plan.once_usd,
        "worst_usd": plan.worst_usd,
        "expected_usd": plan.expected_usd,
        "expected_seconds": plan.expected.total_seconds() if plan.expected else None,
        "budget_usd": plan.budget_usd,
        "deadline_at": plan.deadline_at,
        "basis": plan.basis,
        "takes": to_plain(plan.takes),
        "unsent": to_plain(plan.unsent),
        "notes": list(plan.notes),
        "modes": prices_as_data(plan.modes),
        "checks": checks_as_data(plan.checks),
    }


def _fields(action: object) -> dict[str, Any]:
    return dict(to_plain(action))


def _from_here(text: str) -> str:
    """Shorten paths below this folder, because they make lines long."""
    return text.replace(f"{Path.cwd()}/", "")


def _unsent_lines(plan: Plan) -> list[str]:
    """List the files that aren't sent; their names may hold anything."""
    return [clean_line(line) for line in describe_unsent(plan.unsent)] if plan.unsent else []


def _takes_lines(plan: Plan) -> list[str]:
    """List what the job is given; values of variables are never shown."""
    takes = plan.takes
    if takes is None or not plan.actions:
        return []
    volumes = [f"{each.name} at {each.target} ({each.size_gib:,} GiB, {each.at_end})" for each in takes.volumes]
    named = {
        "setup": _script_lines(takes.setup),
        "python": [_from_here(takes.python)] if takes.python else [],
        "secrets": takes.secrets,
        "from this shell": takes.inherited,
        "volumes": volumes,
        "outputs": [*takes.outputs, *filter(None, (takes.checkpoints,))],
        "reached through": [takes.jump_host] if takes.jump_host else [],
        "this computer runs, to reach it": [takes.proxy_command] if takes.proxy_command else [],
    }
    lines = [f"{what}: {', '.join(names)}" for what, names in named.items() if names]
    return [clean_line(line) for line in (*lines, *map(_task_line, takes.tasks))]


def _task_line(task: Task) -> str:
    """Say what a task has of the machine, when it starts, and what it runs."""
    results = [*task.shown_outputs, *filter(None, (task.checkpoints,))]
    parts = [
        _describe_gpus(task.gpus) if task.gpus else "",
        f"{task.cpus} core{'s' if task.cpus > 1 else ''}" if task.cpus else "",
        f"after {task.after}" if task.after else "",
        "on the first machine only" if task.nodes is Nodes.HEAD else "",
        f"results in {', '.join(results)}" if results else "",
    ]
    said = ", ".join(filter(None, parts))
    return f"task {task.name}{f' ({said})' if said else ''}: {', '.join(_script_lines(task.run))}"


def _describe_gpus(gpus: tuple[int, ...]) -> str:
    first, last = gpus[0], gpus[-1]
    is_range = len(gpus) > 1 and gpus == tuple(range(first, last + 1))
    named = f"{first}-{last}" if is_range else ",".join(map(str, gpus))
    return f"GPU {named}" if len(gpus) == 1 else f"GPUs {named}"


def _script_lines(script: str) -> list[str]:
    """Show a script's first line, and count the others."""
    lines = [line.strip() for line in script.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    more = len(lines) - 1
    rest = f"and {more} more line{'s' if more > 1 else ''}"
    return [*lines[:1], *([rest] if more > 0 else [])]


def _price_lines(plan: Plan) -> tuple[str, str]:
    expected = "unknown"
    if plan.expected is not None and plan.expected_usd is not None:
        expected = f"{format_duration(plan.expected)}, {format_usd(plan.expected_usd)}"
    cap = f" (budget {format_usd(plan.budget_usd)})" if plan.budget_usd is not None else ""
    worst = f"worst case {format_usd(plan.worst_usd)}{cap}"
    most = plan.most_usd_per_hour
    rate = f"{format_usd(plan.usd_per_hour)}/h" + (
        f" (at most {format_usd(most)}/h)" if most > plan.usd_per_hour else ""
    )
    if any(isinstance(action, ExtendDeadline) for action in plan.actions):
        return f"{rate}, {worst}", f"({plan.basis})"
    return f"{rate}, expected {expected}, {worst}", f"({plan.basis})"


def print_remaining(console: Console, app: App, spec: LaunchSpec) -> None:
    """Print what exists of a run, what it costs, and the two commands to continue or clean up."""
    machines = app.ledger.machines(spec.run_id, live_only=True)
    created = {i.subject for i in app.ledger.open_intents(spec.run_id) if i.kind == CreateMachine.__name__}
    unsure = created - {machine.id for machine in machines}
    if not machines and not unsure:
        console.print(f"Run {spec.run_id} has no machine; it has cost {_spent(app, spec)}.", markup=False)
    record = app.ledger.run(spec.run_id)
    if record is None:
        return
    for machine in machines:
        console.print(
            f"Machine {machine.id} exists at {spec.provider}: {format_usd(machine.usd_per_hour)}/h, "
            f"{_spent(app, spec)} so far, {_end_of(app, machine)}.",
            markup=False,
        )
    _warn(console, app, machines)
    for name in sorted(unsure):
        console.print(f"Machine {name} may exist: its creation was interrupted.", markup=False)
    console.print(f"  go on:    kedge resume {spec.run_id}", markup=False)
    if record.stage is RunStage.LIVE:
        console.print(f"  clean up: kedge teardown {spec.run_id}", markup=False)


def print_conclusion(
    console: Console, app: App, spec: LaunchSpec, progress: RunProgress, fetches: list[FetchResults]
) -> None:
    """Print how a plan ended."""
    machines = app.ledger.machines(spec.run_id, live_only=True)
    if progress.command.state != "idle":
        console.print(f"Run {spec.run_id}: {progress.command.state}", markup=False)
        for line in outcome_lines(progress.tasks):
            print_folded(console, line)
    at_work = RunState(_recorded_state(app, spec)).is_live
    for fetch in fetches:
        console.print(f"Results: {shorten(fetch.destination)}", markup=False)
        for line in _left_behind_lines(spec, progress, fetch, at_work=at_work):
            console.print(line, markup=False)
    console.print(f"Cost: {_spent(app, spec)}", markup=False)
    for machine in machines:
        rate = f"{format_usd(machine.usd_per_hour)}/h, " if machine.usd_per_hour else ""
        print_folded(console, f"Machine {machine.id} is running: {rate}{_end_of(app, machine)}.")
    for what, command in _next_steps(spec, progress, has_machine=bool(machines)):
        console.print(f"  {what:<10} {command}", markup=False)
    _warn(console, app, machines)


def _left_behind_lines(spec: LaunchSpec, progress: RunProgress, fetch: FetchResults, *, at_work: bool) -> Iterator[str]:
    """Describe what each task has left behind; a task that isn't known to be over may be at work."""
    for name, own in folders_of(spec).items():
        folder = Path(fetch.destination) / own.key
        found = read_left_behind(folder) if not fetch.tasks or name in fetch.tasks else None
        if found is None:
            continue
        live = progress.tasks[name].state.is_live if name in progress.tasks else at_work
        lines = left_behind_lines(found, spec.job, shorten(str(folder)), at_work=live)
        yield from ([f"Task {name}:"] if name and lines else [])
        yield from lines


def _next_steps(spec: LaunchSpec, progress: RunProgress, *, has_machine: bool) -> Iterator[tuple[str, str]]:
    """Yield the next steps that make sense, each with its command."""
    run, state = spec.run_id, progress.command.state
    if has_machine:
        if spec.job.tasks and not state.is_over:
            yield "follow:", f"kedge logs -f {run}"
        if state is RunState.STOPPED:
            yield "go on:", f"kedge start {run}"
        yield "look in:", f"kedge ssh {run}"
        yield "clean up:", f"kedge teardown {run}"
    elif state is RunState.SUCCEEDED:
        yield "log:", f"kedge logs {run}"
        if spec.job.bundled_trainer:
            yield "your own:", "write a kedge.yaml beside your script, then `kedge plan`"


def _end_of(app: App, machine: Machine) -> str:
    left = format_duration(machine.deadline_at - app.clock.now())
    ends = app.world(machine.provider).provider.ends_by_itself
    return f"gone by itself in {left}" if ends else f"its deadline in {left}"


def _warn(console: Console, app: App, machines: Sequence[Machine]) -> None:
    for line in dict.fromkeys(line for machine in machines for line in _caveats(app, machine)):
        console.print(f"  note: {line}", markup=False)


def _caveats(app: App, machine: Machine) -> tuple[str, ...]:
    return app.world(machine.provider).provider.caveats


def run_as_data(app: App, spec: LaunchSpec, progress: RunProgress) -> dict[str, Any]:
    """Return a run's state as JSON-ready data."""
    command = progress.command
    machines = app.ledger.machines(spec.run_id, live_only=True)
    return {
        "run": spec.run_id,
        "job": spec.job.name,
        "mode": spec.job.mode,
        "state": command.state if command.state != "idle" else _recorded_state(app, spec),
        "exit_code": command.exit_code,
        "tasks": outcomes_as_data(spec.job, progress),
        "finished": progress.finished,
        "machines": machines,
        "cost_usd": spent_usd(app.ledger.rentals(spec.run_id), app.clock.now()),
        "results": spec.results,
    }


def _recorded_state(app: App, spec: LaunchSpec) -> str:
    record = app.ledger.run(spec.run_id)
    return (record.outcome if record else "") or "idle"


def _spent(app: App, spec: LaunchSpec) -> str:
    """Describe what a run has cost; a price on the user's own computer is a rehearsal."""
    usd = spent_usd(app.ledger.rentals(spec.run_id), app.clock.now())
    if not is_here(spec.provider):
        return format_usd(usd)
    return f"{format_usd(usd)}, rehearsed" if usd else "nothing"
