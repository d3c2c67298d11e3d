"""Draws answers as tables, or as JSON for scripts. It loads nothing slow, because `status` uses it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator.cli.drawing.modes import mode_lines, mode_words, modes_as_data
from orchestrator.cli.drawing.nodes import node_table, nodes_as_data
from orchestrator.cli.drawing.status_line import load_words, machines_words
from orchestrator.cli.drawing.task_states import run_progress, task_table, tasks_as_data
from orchestrator.cli.terminal.table import Table
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import RunStage
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_bytes, format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.lookup.listing import JobListing
    from orchestrator.core.job import LaunchSpec
    from orchestrator.core.machine import Machine
    from orchestrator.core.offer import Offer
    from orchestrator.engine.observing.recorded import RunStatus


def print_json(data: object) -> None:
    """Print one JSON document."""
    print(json.dumps(to_plain(data), indent=2, default=_plain_decimal))


def to_plain(data: object) -> Any:
    """Convert data to types that JSON has, except amounts of money, which `print_json` writes."""
    return msgspec.to_builtins(data, str_keys=True, builtin_types=(Decimal,), enc_hook=_plain_path)


def _plain_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _plain_decimal(amount: Decimal) -> str:
    """Write every digit and no exponent: a price of zero is "0", not "0E-30"."""
    return f"{amount.normalize():f}"


def problem(text: str) -> None:
    """Print what went wrong, on standard error, apart from output for scripts."""
    print(text, file=sys.stderr)


def said(text: str) -> None:
    """Print a sentence."""
    print(text)


def offers(found: Sequence[Offer], basis: str, *, as_json: bool) -> None:
    """Print what is for sale, and how old the prices are."""
    if as_json:
        print_json(found)
        return
    columns = ("provider", "region", "type", "GPU", "GPU memory", "CPUs", "memory", "price/h", "disks+IP/h")
    table = Table(*columns, names=("provider", "region", "type", "GPU"))
    for offer in found:
        table.add_row(
            offer.provider,
            "/".join(part for part in (offer.region, offer.zone) if part),
            offer.instance_type + (" (spot)" if offer.spot else ""),
            str(offer.accelerators or "-"),
            f"{offer.gpu_memory_gib:.0f} GiB" if offer.accelerators else "-",
            str(offer.cpus),
            f"{offer.memory_gib:.0f} GiB",
            format_usd(offer.usd_per_hour),
            format_usd(offer.disk_usd_per_hour) if offer.disk_usd_per_hour else "-",
        )
    if found:
        table.print()
        print(f"Prices: {basis}.")
    else:
        print("No offer fits.")


def jobs(found: Sequence[JobListing], *, as_json: bool) -> None:
    """Print the jobs that `--job NAME` knows."""
    if as_json:
        print_json(found)
        return
    table = Table("job", "modes", "what it is", "file", names=("job", "modes", "file"))
    for entry in found:
        modes = [" ".join((mode, *entry.arguments.get(mode, ()))) for mode in entry.modes]
        table.add_row(entry.name, ", ".join(modes) or "-", entry.problem or entry.description, shorten(str(entry.path)))
    if found:
        table.print()
    else:
        print("No job: write a kedge.yaml (see docs/job-file.md).")


def schema(found: dict[str, Any], output: str | None) -> None:
    """Print the job schema, or write it to a file."""
    text = json.dumps(found, indent=2)
    if output is None:
        print(text)
    else:
        from orchestrator.adapters.host.files import write_atomically

        here = Path.cwd()
        if not (here / output).parent.is_dir():
            raise BadRequestError(
                f"there is no folder for {output}", fix="make it, or name a file in one that is there"
            )
        within = None if Path(output).is_absolute() else here
        write_atomically(here / output, f"{text}\n".encode(), mode=0o644, within=within)


def statuses(
    found: Sequence[RunStatus],
    strays: Sequence[Machine],
    *,
    as_json: bool,
    detailed: bool,
    tasks: Sequence[str] = (),
) -> None:
    """Print the status of runs as a table, then their findings.

    Args:
        found: the runs.
        strays: machines that belong to no live run.
        as_json: print one JSON document.
        detailed: print also the tasks, the machine's load and more.
        tasks: the names of the tasks to print; empty for all.
    """
    if as_json:
        print_json([*(_status_as_data(status, tasks) for status in found), *map(_stray_as_data, strays)])
        return
    for stray in strays:
        print(f"! {_describe_stray(stray)}: `kedge teardown {stray.run_id}` ends it")
    if found:
        _print_statuses(found, tasks, detailed=detailed)
    elif not strays:
        print("No live run. `kedge launch` starts one; `kedge status --all` lists ended ones.")


def _print_statuses(found: Sequence[RunStatus], tasks: Sequence[str], *, detailed: bool) -> None:
    columns = ("run", "state", "progress", "machine", "age", "cost", "gone in")
    runs = Table(*columns, names=("run", "state", "machine"))
    for status in found:
        runs.add_row(*_status_row(status))
    runs.print()
    for status in found:
        for finding in status.findings:
            print(clean_line(f"! {status.record.run_id}: {finding}"))
        if status.results_wait:
            print(f"{status.record.run_id}: done; results wait: kedge fetch {status.record.run_id}")
        if detailed:
            for line in _status_details(status):
                print(clean_line(line))
            for table in filter(None, (node_table(status), task_table(status, tasks))):
                table.print()


def _describe_stray(machine: Machine) -> str:
    return f"machine {machine.id} is at {machine.provider}, and belongs to no live run"


def _stray_as_data(machine: Machine) -> dict[str, Any]:
    return {
        "run": machine.run_id,
        "stage": "stray",
        "state": "unknown",
        "machines": [machine],
        "findings": [_describe_stray(machine)],
    }


def _status_row(status: RunStatus) -> list[str]:
    machines = status.machines
    return [
        status.record.run_id,
        f"{status.state}{mode_words(status.record.spec)}",
        run_progress(status.task_reports) or "-",
        machines_words(machines) if machines else "-",
        format_duration(status.now - status.record.created_at),
        format_usd(status.spent_usd),
        format_duration(max(machine.deadline_at for machine in machines) - status.now) if machines else "-",
    ]


def _status_details(status: RunStatus) -> list[str]:
    spec, is_live = status.record.spec, status.record.stage is RunStage.LIVE
    recovery = [_recovery_line(spec)] if is_live and spec.job.tasks else []
    return [*mode_lines(spec, status.modes, is_live=is_live), *recovery, *_report_lines(status)]


def _recovery_line(spec: LaunchSpec) -> str:
    if not spec.recover:
        return f"  recovery: none; `kedge resume {spec.run_id} --recover` begins it"
    until = f", until {spec.until:%F %H:%M} UTC" if spec.until else ""
    return f"  recovery: lost machines are replaced{until}; `kedge resume {spec.run_id} --no-recover` ends that"


def _report_lines(status: RunStatus) -> list[str]:
    report = status.report
    if report is None:
        return []
    command = report.command
    said = f"  command: {command.state}, attempt {command.attempt}, {command.reason or 'no remark'}"
    # Named tasks have a table.
    lines = [] if report.tasks else [said]
    if len(status.machines) == 1:
        lines.append(f"  load: {load_words(report.sample) or 'no sample yet'}")
    lines.append(f"  disk: {format_bytes(report.disk_free_bytes)} free of {format_bytes(report.disk_total_bytes)}")
    lines.append(f"  code: {report.code[:12] or 'none'}")
    only = status.task_reports.get("")
    if only is not None and only.checkpoint is not None:
        age = format_duration(timedelta(seconds=report.now - only.checkpoint.written))
        lines.append(f"  newest checkpoint: {only.checkpoint.name}, {age} old")
    if report.upload:
        said = report.upload.error or f"{report.upload.checkpoint or 'no checkpoint'} is there"
        lines.append(f"  copied off the machine: {said}")
    return lines


def _status_as_data(status: RunStatus, tasks: Sequence[str]) -> dict[str, Any]:
    return {
        "run": status.record.run_id,
        "job": status.record.spec.job.name,
        "mode": status.record.spec.job.mode,
        "modes": modes_as_data(status.record.spec, status.modes),
        "later": [job.mode for job in status.record.spec.later],
        "stage": status.record.stage,
        "state": status.state,
        "recover": status.record.spec.recover,
        "until": status.record.spec.until,
        "created_at": status.record.created_at,
        "spent_usd": status.spent_usd,
        "machines": status.machines,
        "report": status.report,
        "reports": status.reports,
        "nodes": nodes_as_data(status),
        "tasks": tasks_as_data(status, tasks),
        "findings": status.findings,
        "results_wait": status.results_wait,
    }


def ssh_config(path: Path, *, installed: bool | None) -> None:
    """Print where the SSH configuration is, and whether OpenSSH reads it."""
    if installed is None:
        print(f"Written: {path}\n`kedge ssh-config --install` puts the Include line into your own configuration.")
    else:
        print(f"Plain `ssh RUN` works now: {path} is included" + ("." if installed else " already."))


def shorten(folder: str) -> str:
    """Shorten a path below this folder to a relative one."""
    path = Path(folder)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else folder
