"""Draws plans and how they ended. It loads rich, which quick commands don't need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator.adapters.providers import is_here
from orchestrator.app.results import read_left_behind
from orchestrator.app.root import App
from orchestrator.cli.drawing.left_behind import left_behind_lines
from orchestrator.cli.drawing.render import shorten, to_plain
from orchestrator.cli.terminal.console import print_folded
from orchestrator.core.actions import CreateMachine, describe, sign
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_duration, format_usd
from orchestrator.core.values.unsent import describe_unsent
from orchestrator.engine.performing import RunProgress


def print_plan(console: Console, spec: LaunchSpec, plan: Plan, findings: Sequence[str] = ()) -> None:
    """Print a plan's actions, then its price."""
    mode = f", mode {spec.job.mode}" if spec.job.mode else ""
    console.print(f"Run {plan.run_id} ({spec.job.name}{mode}, {spec.provider})", markup=False)
    for finding in findings:
        print_folded(console, f"  found: {finding}")
    for action in plan.actions:
        console.print(Text("  ") + signed(sign(action), _from_here(describe(action))))
    if not plan.actions:
        console.print("  nothing to do", markup=False)
    for line in (*_unsent_lines(plan), *_takes_lines(plan)):
        print_folded(console, f"  {line}")
    if plan.deadline_at is not None and plan.actions:
        for line in _price_lines(plan):
            print_folded(console, f"  {line}")
    for note in plan.notes:
        print_folded(console, f"  note: {note}")


def signed(mark: str, text: str) -> Text:
    """Put a coloured `+`, `~` or `-` before a text."""
    return Text.assemble((mark, {"+": "bold green", "-": "bold red"}.get(mark, "bold yellow")), f" {text}")


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
    return [clean_line(f"{what}: {', '.join(names)}") for what, names in named.items() if names]


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


def print_conclusion(console: Console, app: App, spec: LaunchSpec, progress: RunProgress, fetched: list[str]) -> None:
    """Print how a plan ended."""
    machines = app.ledger.machines(spec.run_id, live_only=True)
    if progress.command.state != "idle":
        console.print(f"Run {spec.run_id}: {progress.command.state}", markup=False)
    at_work = RunState(_recorded_state(app, spec)).is_live
    for folder in fetched:
        console.print(f"Results: {shorten(folder)}", markup=False)
        if (found := read_left_behind(Path(folder))) is not None:
            for line in left_behind_lines(found, spec.job, shorten(folder), at_work=at_work):
                console.print(line, markup=False)
    console.print(f"Cost: {_spent(app, spec)}", markup=False)
    for machine in machines:
        rate = f"{format_usd(machine.usd_per_hour)}/h, " if machine.usd_per_hour else ""
        print_folded(console, f"Machine {machine.id} is running: {rate}{_end_of(app, machine)}.")
    for what, command in _next_steps(spec, progress, has_machine=bool(machines)):
        console.print(f"  {what:<10} {command}", markup=False)
    _warn(console, app, machines)


def _next_steps(spec: LaunchSpec, progress: RunProgress, *, has_machine: bool) -> Iterator[tuple[str, str]]:
    """Yield the next steps that make sense, each with its command."""
    run, state = spec.run_id, progress.command.state
    if has_machine:
        if spec.job.run and not state.is_over:
            yield "follow:", f"kedge logs -f {run}"
        if state is RunState.STOPPED:
            yield "go on:", f"kedge start {run}"
        yield "look in:", f"kedge ssh {run}"
        yield "clean up:", f"kedge teardown {run}"
    elif state is RunState.SUCCEEDED:
        yield "log:", f"kedge logs {run}"
        if not spec.job.workdir:
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


def run_as_data(app: App, spec: LaunchSpec, command: Command, *, finished: bool) -> dict[str, Any]:
    """Return a run's state as JSON-ready data."""
    machines = app.ledger.machines(spec.run_id, live_only=True)
    return {
        "run": spec.run_id,
        "job": spec.job.name,
        "mode": spec.job.mode,
        "state": command.state if command.state != "idle" else _recorded_state(app, spec),
        "exit_code": command.exit_code,
        "finished": finished,
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
