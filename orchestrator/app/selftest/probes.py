"""Probes of a self-test's machine beyond the usual commands: keys, guard, code, progress, notice, results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.providers import look_at_guard
from orchestrator.adapters.ssh.dial import dial
from orchestrator.adapters.ssh.failures import HostKeyError
from orchestrator.adapters.ssh.host_key import make_host_key
from orchestrator.adapters.ssh.proxy import proxy_command
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.app.root import App
from orchestrator.app.world import provider_context
from orchestrator.core.checkup import Verdict
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import CLOUD_ROOT, SshAddress
from orchestrator.core.ports import Clock
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.selftest import find_fault
from orchestrator.engine.observing.questions import ask

_POLL = timedelta(seconds=1)
_LONGEST_WAIT = timedelta(minutes=5)
"""A step takes ten seconds; before the first one, code and data arrive."""
_SOON = timedelta(seconds=30)
_TIMER = ("systemctl", "is-active", "kedge-deadline.timer")


def try_pins(app: App, record: RunRecord) -> str:
    """Check that the machine's own host key is accepted, and that another one is refused.

    Raises:
        KedgeError: it isn't, or another one is accepted.
    """
    address = app.machine(record).require_address()
    if address.provisional:
        raise KedgeError("the machine still has its temporary host key")
    if ask(app.world(record.spec.provider), app.machine(record)) is None:
        raise UnreachableError("the machine's agent doesn't answer over SSH")
    try_wrong_pin(address, app.clock, app.ssh_places)
    return "the machine's key is accepted, another one is refused"


def try_wrong_pin(address: SshAddress, clock: Clock, places: SshFiles) -> None:
    """Connect with another host key pinned: only a refusal for that reason passes.

    Raises:
        UnreachableError: nobody answers, which proves nothing.
        KedgeError: the key is accepted.
    """
    wrong = replace(address, host_key=make_host_key().public)
    try:
        dial(wrong, clock, timedelta(0), proxy=proxy_command(wrong, places.user_config)).close()
    except HostKeyError:
        return
    raise KedgeError("a host key that isn't the machine's was accepted", fix="report this: it must never happen")


def read_guard(app: App, record: RunRecord) -> str:
    """Read what ends the machine at its deadline: on the machine, and outside of it if the provider supports that.

    Raises:
        KedgeError: it isn't armed.
    """
    machine = app.machine(record)
    report = await_report(app, record)
    if report.deadline_at > machine.deadline_at.timestamp() + 60:
        raise KedgeError("the machine ends itself later than its deadline")
    if machine.root == CLOUD_ROOT:
        done = app.remote(machine).run(_TIMER, timeout=_SOON)
        if done.exit_code:
            raise KedgeError("the deadline's timer on the machine isn't active", why=done.stdout.decode().strip())
    verdict, found, fix = look_at_guard(record.spec.provider, provider_context(app.settings, app.clock), machine)
    if verdict is Verdict.FAILED:
        raise KedgeError(found, fix=fix)
    return f"{machine.deadline_at:%H:%M} UTC; {found}"


def compare_code(app: App, record: RunRecord) -> str:
    """Compare the code on the machine with the laptop's.

    Raises:
        KedgeError: they differ.
    """
    source = app.world(record.spec.provider).code_source(record.spec.job)
    ours, theirs = source.summary().hash if source else "", await_report(app, record).code
    if ours != theirs:
        raise KedgeError(f"the machine has code {theirs[:12] or 'none'}, not {ours[:12]}")
    return f"{ours[:12]}, as on this computer"


def await_step(app: App, record: RunRecord, step: int, *, start: int) -> str:
    """Wait until the training reports that it has done a step since a start.

    Args:
        app: the composition root.
        record: the run.
        step: counted over all starts.
        start: 1 for the first.

    Raises:
        KedgeError: it ends before that, or takes too long.
    """

    def is_reached(report: MachineReport) -> bool:
        done = _count(report, "step") >= step and _count(report, "starts") >= start
        if report.command.state.is_over and not done:
            raise KedgeError(f"the training is {report.command.state}", why=report.command.reason)
        return done

    return f"step {_count(await_report(app, record, is_reached), 'step')}"


def give_notice(app: App, record: RunRecord) -> str:
    """Give the training a notice, as a spot market's recommendation does: write a checkpoint now, and continue.

    Raises:
        KedgeError: the training doesn't notice it.
    """
    machine = app.machine(record)
    done = app.remote(machine).run([machine.agent, "notice", "kedge selftest"], timeout=_SOON)
    if done.exit_code:
        raise KedgeError("the agent doesn't take the notice", why=done.stderr.decode(errors="replace").strip())

    def is_seen(report: MachineReport) -> bool:
        seen = bool((report.progress or {}).get("noticed"))
        if report.command.state.is_over and not seen:
            raise KedgeError(f"the training is {report.command.state} and never saw the notice")
        return seen

    await_report(app, record, is_seen)
    return "the training saw it and went on; a real reclaim can't be requested"


def check_results(folder: Path) -> str:
    """Check the fetched results.

    Raises:
        KedgeError: something in them is wrong.
    """
    texts = [_read(folder / "output" / name) for name in ("steps.log", "status.json")]
    if fault := find_fault(*texts):
        raise KedgeError(fault)
    return "each step was done once, over a stop and a resume"


def await_report(
    app: App, record: RunRecord, wanted: Callable[[MachineReport], bool] = lambda _report: True
) -> MachineReport:
    """Request the machine's report until it is the wanted one.

    Raises:
        KedgeError: it takes too long.
    """
    world = app.world(record.spec.provider)

    def look() -> MachineReport | None:
        report = ask(world, app.machine(record))
        return report if report is not None and wanted(report) else None

    if (report := poll_until(look, _LONGEST_WAIT, app.clock, first=_POLL, longest=_POLL)) is None:
        raise KedgeError("the machine didn't get that far", why=f"kedge waited for {_LONGEST_WAIT}")
    return report


def _count(report: MachineReport, name: str) -> int:
    count = (report.progress or {}).get(name, 0)
    return count if isinstance(count, int) else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as err:
        raise KedgeError(f"{path.name} is missing in the results", why=str(err)) from err
