"""The composition root: settings -> adapters -> world. One `App` serves one command."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.settings import Settings, read_settings
from orchestrator.adapters.jobfile.assembly.bundled import trainer_packages
from orchestrator.adapters.jobfile.lookup.find import nearest_job
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.app.results import prepare_results, results_folder
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import LOOK_WAIT, RunRecord, RunStage
from orchestrator.core.machine import Machine, SshAddress, newest_gang, node_of
from orchestrator.core.task import Task
from orchestrator.core.values.network import parse_address_range

if TYPE_CHECKING:
    from orchestrator.adapters.ssh.reopening import ReopeningConnector
    from orchestrator.adapters.ssh.ssh_files import SshFiles
    from orchestrator.core.plan import Plan
    from orchestrator.core.ports import Clock, Remote
    from orchestrator.core.transfers import CodeSource, Stage
    from orchestrator.engine.events import Events
    from orchestrator.engine.run_progress import RunProgress
    from orchestrator.engine.world import World


class App:
    """Everything that a command can use."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        ssh_from: str | None = None,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Create the root.

        Args:
            settings: None reads them from the environment.
            ssh_from: who may reach machines over SSH, if the user says so.
            tell: receives remarks about what is being waited for.
        """
        self.tell = tell
        self.settings = settings or read_settings()
        if ssh_from is not None:
            self.settings = replace(self.settings, ssh_from=parse_address_range(ssh_from, everybody=True))
        self.clock: Clock = SystemClock()
        self._worlds: dict[str, World] = {}

    @cached_property
    def ledger(self) -> SqliteLedger:
        """The local ledger."""
        return SqliteLedger(self.settings.state_dir, self.clock)

    @cached_property
    def connector(self) -> ReopeningConnector:
        """Connects to machines; if one doesn't answer, asks its provider to open it to this computer."""
        from orchestrator.adapters.ssh.connector import SshConnector
        from orchestrator.adapters.ssh.reopening import ReopeningConnector

        direct = SshConnector(self.ssh_places, self.clock, environ=self.settings.environ)
        return ReopeningConnector(direct, self._reopen, self.clock)

    @property
    def ssh_places(self) -> SshFiles:
        """The files of pinned keys and control sockets."""
        from orchestrator.adapters.ssh.ssh_files import SshFiles, sockets_folder

        usual = Path("~/.ssh/config").expanduser()
        return SshFiles(
            pins=self.settings.state_dir / "pins",
            runtime=sockets_folder(self.settings.runtime_dir),
            user_config=self.settings.ssh_config if self.settings.ssh_config != usual else None,
        )

    def world(self, provider: str) -> World:
        """Make the world of one provider from its ports."""
        from orchestrator.app.world import make_world

        if provider not in self._worlds:
            self._worlds[provider] = make_world(
                provider, self.settings, self.clock, self.ledger, self.connector, self.code_source
            )
        return self._worlds[provider]

    def choose_run(self, name: str | None, *, live_only: bool = True) -> RunRecord:
        """Return the named run, or the only live one of this folder's job; never one of another folder.

        Args:
            name: a run id, or its beginning; None to choose.
            live_only: if none is live, don't return the newest ended run of this folder.

        Raises:
            BadRequestError: there is none, or several.
        """
        if name is not None:
            return self.named_run(name)
        runs = self.ledger.runs()
        live = [run for run in runs if run.stage is RunStage.LIVE]
        candidates = self.of_this_folder(live)
        if not candidates and not live_only:
            candidates = self.of_this_folder(runs)[:1]
        return _only(candidates, "live run" if live_only else "run", elsewhere=live)

    def machine(self, record: RunRecord, node: int = 0) -> Machine:
        """Return the run's machine with this rank (its head) as the ledger knows it; wait for it if it still boots.

        Raises:
            UnreachableError: the run has no such machine, or none that can be reached.
        """
        found = node_of(self.ledger.machines(record.run_id, live_only=True), node)
        if found is not None and found.has_booted:
            return found
        from orchestrator.app.booting import await_machine

        return await_machine(self, record, node)

    def machines(self, record: RunRecord) -> tuple[Machine, ...]:
        """Return all machines of the run by rank; wait for the head if it is still booting.

        Raises:
            UnreachableError: the run has no machine, or its head can't be reached.
        """
        head = self.machine(record)
        others = newest_gang(self.ledger.machines(record.run_id, live_only=True))
        return (head, *(machine for machine in others if machine.id != head.id and machine.rank))

    def remote(self, machine: Machine) -> Remote:
        """Connect to a machine."""
        return self.connector.connect(machine.require_address())

    def let_in(self, record: RunRecord) -> None:
        """Open the run's machines to the range that the user has given."""
        for machine in self.ledger.machines(record.run_id, live_only=True):
            self._reopen_machine(machine)

    def reconcile(self, record: RunRecord) -> tuple[str, ...]:
        """Reconcile the run with its provider before it is planned again."""
        from orchestrator.engine.observing.reconcile import reconcile

        with self.ledger.lock(record.run_id, wait=LOOK_WAIT):
            return reconcile(self.world(record.spec.provider), record.run_id)

    def apply(self, spec: LaunchSpec, plan: Plan, events: Events) -> RunProgress:
        """Apply a plan, and update the SSH configuration."""
        from orchestrator.core.actions import AwaitMachine, DestroyMachine, FetchResults
        from orchestrator.engine.apply import apply

        for action in plan.actions:
            if isinstance(action, FetchResults):
                prepare_results(Path(action.destination), self.settings.cwd)
        try:
            return apply(plan, spec, self.world(spec.provider), events)
        finally:
            # Only then can the address have changed; writing it takes longer than a sync that finds nothing to do.
            if any(isinstance(action, AwaitMachine | DestroyMachine) for action in plan.actions):
                self.write_ssh_config()

    def end(self, run_id: str) -> tuple[str, ...]:
        """Close a run in the ledger once nothing of it is left at its provider, and return what was kept.

        Raises:
            StillBillingError: something is left.
        """
        from orchestrator.engine.observing.reconcile import close_run

        with self.ledger.lock(run_id, wait=LOOK_WAIT):
            return close_run(self.world(self.named_run(run_id).spec.provider), run_id)

    def write_ssh_config(self) -> Path:
        """Write the include file that makes plain `ssh <run>` work for every run, `ssh <machine>` for its others."""
        # Imported when needed: it loads jinja2, which quick commands do without.
        from orchestrator.adapters.ssh.ssh_config import write_ssh_config

        hosts = {
            machine.id if machine.rank else machine.run_id: machine.address
            for machine in self.ledger.machines(live_only=True)
            if machine.address is not None
        }
        path = self.settings.state_dir / "ssh_config"
        write_ssh_config(path, hosts, self.ssh_places)
        return path

    def named_run(self, name: str) -> RunRecord:
        """Look up a run by its id or the beginning of it.

        Raises:
            BadRequestError: there is none, or several match.
        """
        record = self.ledger.run(name)
        if record is not None:
            return record
        known = [run.run_id for run in self.ledger.runs()]
        near = [run for run in known if run.startswith(name)] or difflib.get_close_matches(name, known)
        if len(near) == 1 and near[0].startswith(name):
            return self.named_run(near[0])
        if not near and (stray := self.adopt(name)) is not None:
            return stray
        raise BadRequestError(
            f"there is no run {name!r}",
            why=f"did you mean {', '.join(near[:5])}?" if near else "the ledger has no run with that name",
            fix="list them with `kedge status --all`",
        )

    def known_providers(self) -> tuple[str, ...]:
        """List the providers that may have machines of this computer; others aren't asked, and need no credentials."""
        used = {run.spec.provider for run in self.ledger.runs()}
        return tuple(name for name in PROVIDERS if name in used | {self.settings.provider, "local"})

    def adopt(self, name: str) -> RunRecord | None:
        """Add a run to the ledger that is known only by its machines at a provider; None if there is none."""
        for provider in self.known_providers():
            world = self.world(provider)
            machine = next((m for m in world.provider.machines() if name in (m.id, m.run_id)), None)
            if machine is not None:
                folder = str(self.settings.cwd)
                results = str(results_folder(self.settings.cwd, machine.run_id))
                job = Job(name=machine.run_id, tasks=(Task(run="unknown"),))
                spec = LaunchSpec(run_id=machine.run_id, provider=provider, job=job, folder=folder, results=results)
                self.ledger.open_run(spec, machine.created_at)
                return self.ledger.run(machine.run_id)
        return None

    def _reopen(self, address: SshAddress) -> bool:
        """Have the machine at an address opened; a booting machine's address isn't in the ledger yet."""
        machines = self.ledger.machines(live_only=True)
        there = [machine for machine in machines if machine.address and _same_place(machine.address, address)]
        candidates = there or [machine for machine in machines if machine.address is None]
        changed = [self._reopen_machine(machine) for machine in candidates]
        return any(changed)

    def _reopen_machine(self, machine: Machine) -> bool:
        """Open a machine to the range that the user gave for this command or for the run."""
        record = self.ledger.run(machine.run_id)
        ssh_from = self.settings.ssh_from or (record.spec.ssh_from if record else "")
        return self.world(machine.provider).provider.reopen(machine.id, ssh_from)

    def of_this_folder(self, runs: Sequence[RunRecord]) -> list[RunRecord]:
        """Return the runs of the nearest job file upward, and those that were launched in this folder itself."""
        here = self.settings.cwd
        nearest = str(nearest_job(here) or "")
        return [run for run in runs if run.spec.job.path == nearest != "" or run.spec.folder == str(here)]

    def sender(self, record: RunRecord) -> CodeSource | None:
        """Return the source of a run's code; no provider is loaded if machines receive code directly."""
        if PROVIDERS[record.spec.provider].stages:
            return self.world(record.spec.provider).code_source(record.spec.job)
        return self.code_source(record.spec.job, None)

    def code_source(self, job: Job, stage: Stage | None) -> CodeSource | None:
        """Return the source of a job's code, which goes through a stage if there is one.

        Returns:
            None for a job without code.
        """
        if job.workdir is None and not job.bundled_trainer:
            return None
        workdir = Path(job.workdir) if job.workdir else None
        state = self.settings.state_dir / "code"
        extras = trainer_packages(workdir) if job.bundled_trainer else {}
        if stage is None:
            from orchestrator.adapters.sync.code.source import GitCodeSource

            return GitCodeSource(workdir, state=state, clock=self.clock, extras=extras)
        from orchestrator.adapters.sync.code.bucket import BucketCodeSource

        return BucketCodeSource(workdir, state=state, clock=self.clock, extras=extras, stage=stage)


def _same_place(one: SshAddress, other: SshAddress) -> bool:
    """Tell whether two addresses are the same machine's, although its host key may have been replaced in between."""
    return (one.host, one.port) == (other.host, other.port)


def _only(runs: Sequence[RunRecord], wanted: str, *, elsewhere: Sequence[RunRecord]) -> RunRecord:
    if not runs:
        others = ", ".join(f"{run.run_id} ({run.spec.folder})" for run in elsewhere)
        raise BadRequestError(
            f"there is no {wanted} of this folder's job",
            why=f"live elsewhere: {others}" if others else "",
            fix="name a run, or start one with `kedge launch`; `kedge status --all` lists those that ended",
        )
    if len(runs) > 1:
        raise BadRequestError(
            "several runs are live: say which",
            why=", ".join(run.run_id for run in runs),
            fix=f"name one, for example {runs[0].run_id}",
        )
    return runs[0]
