"""Plans, and the observations that they are made from: `core.planning` makes plans, `engine.apply` executes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import LaunchSpec, VolumeSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.protocol.report import MachineReport, RunState
from orchestrator.core.transfers import CodeSummary
from orchestrator.core.values.interpreter import ON_A_CLOUD, JobPython
from orchestrator.core.values.unsent import Unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state of the world before planning.

    Attributes:
        offers: for sale now, in the order to try them; empty if no machine is to be created.
        offers_basis: the source of the prices: `live`, or a snapshot's date.
        machines: this run's machines at the provider that aren't gone.
        machines_before: how many machines this run has had, including those that are gone.
        report: of the run's usable machine, or else of an unusable one that still answers; None if none answers.
        code: of the laptop; None if the job sends none.
        spent_usd: what this run's machines have cost so far.
        usual_duration: of successful runs of this job and mode; None if there are none.
        can_start_at_boot: the provider's machines can start the command by themselves, as `start: boot` asks.
        keeps_results: an object store keeps the results when the machine ends.
        ends_by_itself: the provider's machines can end themselves, and with that their bill.
        caveats: warnings about the provider's machines and its object store.
        has_results: the object store holds something to resume from.
        outcome: the command's last state known to the object store or the ledger; None if unknown.
        revision: the ledger's revision of the run at the time of the observation.
    """

    now: datetime
    offers: tuple[Offer, ...] = ()
    offers_basis: str = "live"
    machines: tuple[Machine, ...] = ()
    machines_before: int = 0
    report: MachineReport | None = None
    code: CodeSummary | None = None
    spent_usd: Decimal = Decimal(0)
    usual_duration: timedelta | None = None
    can_start_at_boot: bool = False
    keeps_results: bool = False
    ends_by_itself: bool = True
    caveats: tuple[str, ...] = ()
    has_results: bool = False
    outcome: RunState | None = None
    revision: int = 0

    def report_of(self, machine: Machine) -> MachineReport | None:
        """Return the report if it is this machine's."""
        return self.report if self.report is not None and self.report.machine == machine.id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a launch gives a job, besides what the actions and the price show: code, data and money.

    Attributes:
        secrets: names of the variables that it declares secret.
        inherited: names of variables whose values come from the shell.
        volumes: volumes in the user's account.
        outputs: folders with results.
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
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    jump_host: str = ""
    proxy_command: str = ""
    setup: str = ""
    python: str = ""
    overlaid: JobPython | None = None


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
    return Takes(
        secrets=job.secrets,
        inherited=job.inherited,
        volumes=job.resources.volumes,
        outputs=job.outputs,
        checkpoints=job.checkpoints,
        jump_host=site.jump_host,
        proxy_command=site.proxy_command,
        setup=job.setup,
        python=(spec.python.describe() if spec.python else ON_A_CLOUD) if job.run else "",
        overlaid=spec.python,
    )


def usable_machine(machines: tuple[Machine, ...], report: MachineReport | None) -> Machine | None:
    """Return the machine on which a run can continue; a machine that is being reclaimed isn't usable."""
    going = report.machine if report is not None and report.notice else ""
    states = (MachineState.BOOTING, MachineState.READY)
    return next((m for m in machines if m.state in states and m.id != going), None)


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
