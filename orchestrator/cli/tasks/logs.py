"""Prints a run's logs, from its machines or from what the machines uploaded to the object store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.app.root import App
from orchestrator.cli.drawing.log_lines import Labels, merge_logs
from orchestrator.cli.drawing.task_states import describe_states
from orchestrator.cli.tasks.log_sources import NodeLogs, read_nodes
from orchestrator.cli.terminal.say import say
from orchestrator.cli.terminal.streams import draw
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.modes import find_mode, folders_of, logs_of
from orchestrator.core.protocol.stream import FollowEvent
from orchestrator.core.task import choose_tasks
from orchestrator.core.values.nodes import choose_node
from orchestrator.core.values.printable import clean_coloured
from orchestrator.engine.observing.observe import latest_upload
from orchestrator.engine.steps.follow import follow as follow_machine
from orchestrator.engine.steps.follow import lost
from orchestrator.engine.steps.follow_nodes import follow_nodes

_UNCOLOURED = "\x1b[m"

_Show = Callable[[int, str, bytes], None]
"""Prints a line of a node's task, which comes without its line end."""


def print_log(
    app: App,
    record: RunRecord,
    tasks: Sequence[str] = (),
    *,
    node: str | None = None,
    mode: str | None,
    lines: int,
    follow: bool,
    raw: bool = False,
) -> None:
    """Print the last lines, and following ones as they are written if asked to.

    Args:
        app: for the ledger and the connections.
        record: the run.
        tasks: the names of the tasks; without names, all and the machine's own log.
        node: the number of one of the run's machines; None for all.
        mode: one of the run's modes; None for the present one.
        lines: how many to begin with.
        follow: continue with new lines.
        raw: the bytes that the command printed; refused on a terminal.

    Raises:
        BadRequestError: raw bytes would go to a terminal, or the run has no such task or node.
        MachineLostError: the followed run has lost its machine, and isn't over.
        KedgeError: there is no log anywhere.
    """
    spec = record.spec
    sequence = spec.sequence if mode is None else find_mode(spec, mode)
    if sequence != spec.sequence and follow:
        raise BadRequestError(f"mode {mode} is over: its log has no new lines", fix="leave --follow out")
    if sequence == spec.sequence:
        choose_tasks(record.run_id, spec.job.tasks, tasks)
    nodes = _choose_nodes(app, record, node)
    labels = Labels([name for name in folders_of(spec, sequence) if not tasks or name in tasks], nodes)
    show = _shown_bytes(labels) if raw else _shown_text(labels, coloured="NO_COLOR" not in app.settings.environ)
    read = read_nodes(app, record, nodes, logs_of(spec, tasks, sequence), lines)
    _show_last({(each.node, name): part for each in read for name, part in each.lines.items()}, lines, show)
    if follow:
        _follow(app, record, read, tasks, show)


def _choose_nodes(app: App, record: RunRecord, node: str | None) -> list[int]:
    """Return the ranks of the machines whose logs are printed: the run may have had more of them than now."""
    machines = app.ledger.machines(record.run_id)
    count = max((record.spec.job.num_nodes, *(machine.rank + 1 for machine in machines)))
    return list(range(count)) if node is None else [choose_node(record.run_id, count, node)]


def _shown_bytes(labels: Labels) -> _Show:
    if sys.stdout.isatty():
        raise BadRequestError(
            "a log's raw bytes are not printed on a terminal",
            why="the terminal would execute the escape sequences in them",
            fix="pipe them, as in `kedge logs --raw | less`, or write them to a file; without --raw they are cleaned",
        )

    def show(node: int, task: str, line: bytes) -> None:
        sys.stdout.buffer.write(labels.label(task, node).encode() + line + b"\n")
        sys.stdout.buffer.flush()

    return show


def _shown_text(labels: Labels, *, coloured: bool) -> _Show:
    def show(node: int, task: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        if not sys.stdout.isatty():
            print(f"{labels.label(task, node)}{text}", flush=True)
            return
        shown = clean_coloured(text)
        end = _UNCOLOURED if "\x1b" in shown else ""
        draw(f"{labels.coded(task, node) if coloured else labels.label(task, node)}{shown}{end}\n")

    return show


def _show_last(logs: Mapping[tuple[int, str], Sequence[bytes]], lines: int, show: _Show) -> None:
    """Show the last lines of all logs together."""
    merged = merge_logs(logs)
    for (node, task), line in merged[max(0, len(merged) - lines) :]:
        show(node, task, line)


def _say_how_it_ended(app: App, record: RunRecord) -> None:
    """Print how a run without a machine ended.

    Raises:
        MachineLostError: it hasn't ended.
    """
    world = app.world(record.spec.provider)
    last = latest_upload(world, record.run_id)
    if last is None or not last.command.state.is_over:
        raise lost(world, app.ledger.machines(record.run_id)[-1])
    each = describe_states(last.tasks)
    say(f"run {record.run_id} is over: {last.command.state}{f' ({each})' if each else ''}")


def _follow(app: App, record: RunRecord, read: Sequence[NodeLogs], tasks: Sequence[str], show: _Show) -> None:
    world = app.world(record.spec.provider)
    machines = [each.machine for each in read if each.machine is not None]
    offsets = {each.node: each.offsets for each in read}
    if not machines or read[0].machine is None:
        # Without its head, a run ends or is resumed.
        _say_how_it_ended(app, record)
        return
    events: Iterable[tuple[int, FollowEvent]]
    if len(machines) == 1:
        (only,) = machines
        followed = follow_machine(world, only, offsets=offsets[only.rank], tasks=tasks, until_over=True)
        events = ((only.rank, event) for event in followed)
    else:
        events = follow_nodes(world, machines, offsets, tasks)
    for node, event in events:
        # An agent sends the machine's own log with any task's.
        if event.line is not None and (not tasks or event.task in tasks):
            show(node, event.task, event.line.encode(errors="replace"))
