"""What a plan is, and what it is made from: `core.planning` makes it, `engine.apply` carries it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import UnreachableError
from orchestrator.core.interpreter import ON_A_CLOUD, JobPython
from orchestrator.core.job import LaunchSpec, VolumeSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.ports import CodeSummary
from orchestrator.core.report import MachineReport, RunState
from orchestrator.core.unsent import Unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was seen of the world before planning.

    Attributes:
        offers: for sale now, in the order in which to try them; empty where no machine is to be created.
        offers_basis: where the prices come from: `live`, or a snapshot's date.
        machines: of this run, not gone, found at the provider.
        machines_before: how many this run has had, those that are gone included.
        report: of the run's usable machine, or else of one that nobody can use and that still answers; None where none
            answers.
        code: the laptop's; None where the job sends none.
        spent_usd: by this run's machines until now.
        usual_duration: of successful runs of this job and mode; None without any.
        boots_alone: the provider's machines can start the command by themselves.
        keeps_results: an object store keeps the results when the machine ends.
        caveats: what to know of the provider's machines and of its object store.
        results: the object store holds something to go on from.
        outcome: the command's last state that the object store or the ledger knows; None for none.
        mark: the ledger's mark of the run when this was seen.
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
    boots_alone: bool = False
    keeps_results: bool = False
    caveats: tuple[str, ...] = ()
    results: bool = False
    outcome: RunState | None = None
    mark: int = 0

    def report_of(self, machine: Machine) -> MachineReport | None:
        """Return the report where it is this machine's."""
        return self.report if self.report is not None and self.report.machine == machine.id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a job takes of its user besides code, data and money, which actions and price show.

    Attributes:
        secrets: names of variables that it calls secret.
        inherited: names of variables that take the shell's values.
        volumes: of the user's account.
        outputs: folders that are results.
        checkpoints: where it writes them; empty for kedge's own folder.
        jump_host: through which the machine is reached; empty for none.
        proxy_command: what this computer runs to reach the machine; empty for nothing.
        setup: the script that is run first; empty for none.
        python: which Python `setup` and `run` have, in words; empty without a command.
        overlaid: this computer's Python, on top of which their environment is made; None on clouds.
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
        usd_per_hour: while the machine lives, at the first of the offers.
        most_usd_per_hour: at the dearest of them, which the worst case counts with.
        once_usd: the most that is paid once, whatever the time: each offer that is tried makes its volumes anew.
        worst_usd: everything that the run can cost until its deadline, what it has cost already included.
        expected: how long it will take; None where nobody knows.
        basis: where the expectation and the prices come from.
        notes: what the user should know before saying yes, one line each.
        takes: what the job is given; None where a plan starts none.
        unsent: what of the working folder isn't sent; None where nothing is left here, or nothing is sent.
        mark: of what was observed; when somebody has acted on the run since, the plan is not carried out.
        ends: it ends the run: nothing is left of it afterwards. A plan that ends a lost machine, and no other, doesn't.
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
    mark: int | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a launch does after it has started the command.

    Attributes:
        follow: show the log until the command is over; what comes after needs it.
        destination: where results go then; None fetches none.
    """

    follow: bool = True
    destination: str | None = None


def plan_takes(spec: LaunchSpec) -> Takes:
    """Say what a job is given."""
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
    """Return the machine on which a run can go on; one that its provider is about to take away is none."""
    going = report.machine if report is not None and report.notice else ""
    states = (MachineState.BOOTING, MachineState.READY)
    return next((m for m in machines if m.state in states and m.id != going), None)


def refuse_snapshot(plan: Plan) -> None:
    """Refuse to carry out a plan whose offers come from a dated snapshot.

    Its prices are old, its zones, images and quotas unchecked: neither the price nor the worst case would hold.

    Raises:
        UnreachableError: the provider could not be asked what it sells now.
    """
    creations = (action for action in plan.actions if isinstance(action, CreateMachine))
    if any(not offer.live for action in creations for offer in action.offers):
        raise UnreachableError(
            "nothing is rented at the prices of a snapshot",
            why=plan.basis,
            fix="sign in, or check the network, and run it again; `kedge plan` and `kedge offers` need neither",
        )
