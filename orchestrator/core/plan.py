"""Plans, and the observations that they are made from: `core.planning` makes plans, `engine.apply` executes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import Job, LaunchSpec, VolumeSpec
from orchestrator.core.machine import Machine, MachineState, newest_gang
from orchestrator.core.offer import Offer
from orchestrator.core.protocol.report import MachineReport, RunState
from orchestrator.core.task import Task
from orchestrator.core.transfers import CodeSummary
from orchestrator.core.values.data_check import DataCheck
from orchestrator.core.values.interpreter import ON_A_CLOUD, JobPython
from orchestrator.core.values.unsent import Unsent

_USABLE = (MachineState.BOOTING, MachineState.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state of the world before planning.

    Attributes:
        offers: for sale now, in the order to try them; empty if no machine is to be created.
        like_left: offers of the type and place of the machines that are left of several, to replace the others; empty
            if none is for sale, or if all machines are left, or none.
        outdated: of several machines, those that know an earlier address of another one.
        offers_basis: the source of the prices: `live`, or a snapshot's date.
        machines: this run's machines at the provider that aren't gone.
        machines_before: how many machines this run has had, including those that are gone.
        report: of the run's head if it is usable, or else of a machine that still answers; None if none answers.
        reports: of all its machines that answer, if it has several.
        head_before: the id of its newest head, which may be gone; empty if the ledger knows none.
        code: of the laptop; None if the job sends none.
        spent_usd: what this run's machines have cost so far.
        machine_type: the type of the machines that the run has, by the ledger; empty if it has none.
        usual_durations: what successful runs of this job and mode took, by the type of machine.
        usual_later: likewise, of each of the modes that follow on the same machine.
        other_mode: the state of the mode that the machine is in, if the run leaves it for another one; else None. Then
            `report` shows nothing of its tasks, which aren't those of the run any more.
        can_start_at_boot: the provider's machines can start the command by themselves, as `start: boot` asks.
        secret_place: where the provider stores secrets for such a machine; empty if they are sent to it over SSH.
        keeps_results: an object store keeps the results when the machine ends.
        ends_by_itself: the provider's machines can end themselves, and with that their bill.
        caveats: warnings about the provider's machines and its object store.
        has_results: the object store holds something to resume from.
        outcome: the command's last state known to the object store or the ledger; None if unknown.
        done: its tasks that have succeeded, according to the object store.
        revision: the ledger's revision of the run at the time of the observation.
    """

    now: datetime
    offers: tuple[Offer, ...] = ()
    like_left: tuple[Offer, ...] = ()
    outdated: tuple[str, ...] = ()
    offers_basis: str = "live"
    machines: tuple[Machine, ...] = ()
    machines_before: int = 0
    report: MachineReport | None = None
    reports: tuple[MachineReport, ...] = ()
    head_before: str = ""
    code: CodeSummary | None = None
    spent_usd: Decimal = Decimal(0)
    machine_type: str = ""
    usual_durations: Mapping[str, timedelta] = field(default_factory=dict)
    usual_later: tuple[Mapping[str, timedelta], ...] = ()
    other_mode: RunState | None = None
    can_start_at_boot: bool = False
    secret_place: str = ""
    keeps_results: bool = False
    ends_by_itself: bool = True
    caveats: tuple[str, ...] = ()
    has_results: bool = False
    outcome: RunState | None = None
    done: tuple[str, ...] = ()
    revision: int = 0

    def is_live(self, report: MachineReport) -> bool:
        """Tell whether a command runs on a machine that answers, also one of a mode that the run leaves."""
        states = (report.command.state, self.other_mode)
        return any(state is not None and state.is_live for state in states)

    def report_of(self, machine: Machine) -> MachineReport | None:
        """Return this machine's report; None if it doesn't answer."""
        return next((report for report in self.all_reports if report.machine == machine.id), None)

    @property
    def all_reports(self) -> tuple[MachineReport, ...]:
        """The reports of all machines that answer."""
        return self.reports or ((self.report,) if self.report is not None else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a launch gives a job, besides what the actions and the price show: code, data and money.

    Attributes:
        secrets: names of the variables that it declares secret.
        inherited: names of variables whose values come from the shell.
        volumes: volumes in the user's account.
        tasks: its named tasks, without the variables, whose values no plan shows; empty for a job with one command.
        outputs: folders with results of a job with one command.
        checkpoints: the folder of its checkpoints; empty for kedge's own.
        jump_host: the SSH server on the way to the machine; empty for none.
        proxy_command: what this computer runs to connect to the machine; empty for nothing.
        setup: the script that runs first; empty for none.
        python: the Python of `setup` and `run`, in words; empty without a command.
        overlaid: the Python of this computer on which their environment is built; None on clouds.
    """

    secrets: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()
    tasks: tuple[Task, ...] = ()
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    jump_host: str = ""
    proxy_command: str = ""
    setup: str = ""
    python: str = ""
    overlaid: JobPython | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePrice:
    """One of several modes that a plan runs one after the other on one machine.

    Attributes:
        expected: how long it will take; None if unknown.
        usd: what it will cost in that time.
        total_usd: what it and those before it will cost; None if one of them is unknown.
        basis: the source of the expectation.
    """

    mode: str
    expected: timedelta | None = None
    usd: Decimal | None = None
    total_usd: Decimal | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An ordered list of actions with its price.

    Attributes:
        usd_per_hour: price of the machine at the first offer.
        most_usd_per_hour: price at the dearest offer, which the worst case uses.
        once_usd: the highest total of one-time costs: each attempted offer creates its volumes again.
        worst_usd: the most that the run can cost until its deadline, including what it has cost so far.
        expected: how long it will take; None if unknown.
        basis: the source of the expectation and of the prices.
        notes: what the user should know before confirming, one line each.
        takes: what the job is given; None if the plan starts no command.
        unsent: files of the working folder that aren't sent; None if every file is sent, or nothing is.
        revision: the observation's; if somebody has acted on the run since, the plan isn't executed.
        ends: the plan ends the run and leaves nothing of it. False for a plan that only ends a lost machine.
        modes: the modes that run one after the other; empty for only one.
        checks: what this computer runs after the user's yes, before anything is created.
    """

    run_id: str
    actions: tuple[Action, ...]
    usd_per_hour: Decimal = Decimal(0)
    most_usd_per_hour: Decimal = Decimal(0)
    once_usd: Decimal = Decimal(0)
    worst_usd: Decimal = Decimal(0)
    expected: timedelta | None = None
    expected_usd: Decimal | None = None
    budget_usd: Decimal | None = None
    deadline_at: datetime | None = None
    basis: str = ""
    notes: tuple[str, ...] = field(default=())
    takes: Takes | None = None
    unsent: Unsent | None = None
    revision: int | None = None
    ends: bool = False
    modes: tuple[ModePrice, ...] = ()
    checks: tuple[DataCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterStart:
    """What a launch does after it has started the command.

    Attributes:
        follow: show the log until the command has ended; the steps after that depend on it.
        destination: where to fetch results to afterwards; None to fetch none.
    """

    follow: bool = True
    destination: str | None = None


def plan_takes(spec: LaunchSpec) -> Takes:
    """List what a launch gives its job."""
    job, site = spec.job, spec.resources.site
    only = next((task for task in job.tasks if not task.name), Task(run=""))
    return Takes(
        secrets=tuple(dict.fromkeys(name for each in (job, *spec.later) for name in each.secrets)),
        inherited=tuple(dict.fromkeys(name for each in (job, *spec.later) for name in each.inherited)),
        volumes=job.resources.volumes,
        tasks=tuple(replace(task, envs=()) for task in job.tasks if task.name),
        outputs=only.shown_outputs,
        checkpoints=only.checkpoints,
        jump_host=site.jump_host,
        proxy_command=site.proxy_command,
        setup=job.setup,
        python=(spec.python.describe() if spec.python else ON_A_CLOUD) if job.tasks else "",
        overlaid=spec.python,
    )


def usable_machines(
    machines: Iterable[Machine], reports: Iterable[MachineReport], num_nodes: int
) -> tuple[Machine, ...]:
    """Return the machines on which a run can continue, by rank; none if one of its ranks has no usable machine."""
    left = machines_left(machines, reports)
    # A run with one machine may continue on whatever machine it has left.
    return left[:1] if num_nodes == 1 else left if len(left) == num_nodes else ()


def machines_left(machines: Iterable[Machine], reports: Iterable[MachineReport]) -> tuple[Machine, ...]:
    """Return the newest usable machine of each rank that has one, by rank; one that is being reclaimed isn't usable."""
    going = {report.machine for report in reports if report.notice}
    usable = (each for each in machines if each.state in _USABLE and each.id not in going)
    return newest_gang(sorted(usable, key=lambda machine: machine.created_at))


def goes_on_without(job: Job, left: Sequence[Machine]) -> bool:
    """Tell whether an elastic job goes on by itself on the machines that are left of several: with the head only."""
    return job.elastic is not None and len(left) >= job.elastic[0] and any(not machine.rank for machine in left)


def refuse_snapshot(plan: Plan) -> None:
    """Refuse to execute a plan whose offers come from a dated snapshot.

    Its prices are old, and its zones, images and quotas unchecked: neither the price nor the worst case would hold.

    Raises:
        UnreachableError: the provider could not be asked for its current offers.
    """
    creations = (action for action in plan.actions if isinstance(action, CreateMachine))
    if any(not offer.live for action in creations for offer in action.offers):
        raise UnreachableError(
            "nothing is rented at the prices of a snapshot",
            why=plan.basis,
            fix="sign in, or check the network, and run it again; `kedge plan` and `kedge offers` need neither",
        )
