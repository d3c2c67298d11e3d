"""The provider: rents EC2 machines, lists them, ends them, and leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.ids import check_id
from orchestrator.adapters.objects.late import LateData, LateStage, LateStore
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.aws import schedule
from orchestrator.adapters.providers.aws.belongings import isolation_caveats, reopen
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.creation import create_instance
from orchestrator.adapters.providers.aws.endings import why_ended
from orchestrator.adapters.providers.aws.everywhere import find_everything
from orchestrator.adapters.providers.aws.guard import guard_machine
from orchestrator.adapters.providers.aws.home import Home, cache_name
from orchestrator.adapters.providers.aws.offers import list_offers
from orchestrator.adapters.providers.aws.ownership import refuse_other_account, refuse_other_account_of
from orchestrator.adapters.providers.aws.record import Records
from orchestrator.adapters.providers.aws.recorded import find_untagged
from orchestrator.adapters.providers.aws.refresh import refresh_snapshot
from orchestrator.adapters.providers.aws.release import remove_belongings
from orchestrator.adapters.providers.aws.restoring import place_snapshots
from orchestrator.adapters.providers.aws.session import AwsSession
from orchestrator.adapters.providers.aws.sweep import EVERY_MACHINE, Found, find_instances, of_machine, of_run, present
from orchestrator.adapters.providers.aws.tags import RUN
from orchestrator.adapters.providers.aws.tools import Tools
from orchestrator.adapters.providers.aws.view import NAME, see_machine, see_unlisted
from orchestrator.adapters.providers.aws.volumes import place_volumes
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.sweep import Sweep

if TYPE_CHECKING:
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine, MachineEnd, MachineOrder
    from orchestrator.core.offer import Offer
    from orchestrator.core.ports import Supplies

_log = logging.getLogger(__name__)

_REGIONS = "KEDGE_AWS_REGIONS"
"""Regions, separated by commas, in which machines are looked for besides those that this laptop knows of."""


def make(context: Context) -> Backing:
    """Make the provider, its store and its stage for the registry; nothing is contacted."""
    session = AwsSession(environ=context.environ)
    folder = context.state_dir / NAME
    cache_dir = folder / cache_name(context.environ)
    cache = Cache(cache_dir, context.clock)
    home = Home(session, cache, data_memory=folder / "data", clock=context.clock)
    tools = Tools(
        session=session,
        records=Records(folder),
        cache=cache,
        cache_dir=cache_dir,
        clock=context.clock,
        key_file=context.key_file,
        account=lambda: home.account,
        fresh_account=home.ask_again,
        stage=lambda: home.stage,
        regions=tuple(name.strip() for name in context.environ.get(_REGIONS, "").split(",") if name.strip()),
    )
    return Backing(
        provider=AwsProvider(tools),
        store=LateStore(lambda: home.store),
        stage=LateStage(lambda: home.stage),
        data=LateData(lambda: home.data),
    )


class AwsProvider:
    """Implements `core.ports.Provider`."""

    name = NAME
    boots_alone = True
    ends_by_itself = True

    def __init__(self, tools: Tools) -> None:
        self.offers_basis = "live"
        self.caveats: tuple[str, ...] = ()
        self._tools = tools

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List what is for sale now and fits the wishes, in the order in which to try it.

        Raises:
            BadRequestError: a wish that AWS doesn't know, or data volumes in different zones.
            NoCapacityError: the quota has no room for any of it.
        """
        tools = self._tools
        placed, zone = place_volumes(resources, tools.session)
        placed, once_usd = place_snapshots(placed, tools.session, zone)
        listing = list_offers(placed, tools.session, tools.clock, tools.cache_dir, volume_zone=zone)
        self.offers_basis = "; ".join((listing.basis, *listing.notes))
        self.caveats = isolation_caveats(tools)
        return tuple(replace(offer, once_usd=once_usd) for offer in listing.offers)

    def refresh_offers(self) -> str:
        """Write the snapshot that offers come from without a network anew, and say where it lies.

        Raises:
            KedgeError: AWS can't be asked; the snapshot stays as it was.
        """
        wrote = refresh_snapshot(self._tools.session, self._tools.clock)
        return f"{wrote['path']}: {wrote['basis']}, {wrote['prices']} prices"

    def machines(self) -> Sequence[Machine]:
        """List every machine that isn't gone, in all regions that this laptop or its user names.

        Those included that were asked for just now and that AWS doesn't list yet.

        Raises:
            KedgeError: a region doesn't answer.
        """
        tools = self._tools
        found = find_instances(tools.session, tools.known_regions(), EVERY_MACHINE)
        return self._see_all([*found, *find_untagged(tools.session, tools.records.machines(), found)])

    def sweep(self) -> Sweep:
        """List all that carries kedge's tags, in every region that is enabled for the account.

        Raises:
            BadRequestError: there are no credentials, or no region was said.
            KedgeError: AWS doesn't list its regions.
        """
        tools = self._tools
        found = find_everything(tools.session, tools.known_regions(), tools.records.machines())
        for instance in found.instances:
            tools.swept.setdefault(instance.tags.get(RUN, ""), set()).add(instance.region)
        for leftover in found.leftovers:
            tools.swept.setdefault(leftover.run_id, set()).update({leftover.region} - {""})
        return Sweep(machines=tuple(self._see_all(found.instances)), leftovers=found.leftovers, unseen=found.unseen)

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already carries the order's id.

        Raises:
            NoCapacityError: this offer can't be had now; the next may.
            StillBillingError: it may have been created, and AWS doesn't tell.
            KedgeError: anything else; nothing of the machine is left.
        """
        check_id(order.id)
        check_id(order.run_id)
        instance, record = create_instance(self._tools, order)
        return see_machine(instance, record, self._tools.key_file)

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None when AWS confirms that it is gone, or never had it.

        Raises:
            BadRequestError: this laptop's record of it is of another account.
            KedgeError: AWS doesn't tell.
        """
        record = self._tools.records.machine(machine_id)
        found = self._find(machine_id)
        living = present(found)
        if living:
            return self._see(living[0])
        if record is None or found:
            return None
        refuse_other_account_of(self._tools, record)
        return see_unlisted(record, self._tools.clock.now())

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        """Say who has ended a machine, for as long as AWS lists it.

        Raises:
            KedgeError: AWS doesn't tell.
        """
        return why_ended(self._tools, check_id(machine_id))

    def supplies(self, machine_id: str) -> Supplies | None:  # noqa: ARG002 - the port's name
        """Return None: an instance fetches its agent and its credentials with its role."""
        return None

    def pin(self, machine_id: str, host_key: str) -> None:
        """Remember the host key that has replaced a machine's provisional one."""
        record = self._tools.records.machine(machine_id)
        if record is None:
            raise KedgeError(f"this computer has no record of machine {machine_id}")
        self._tools.records.keep_machine(replace(record, host_key=host_key, pinned=True))

    def guard(self, machine_id: str) -> None:
        """Make sure that a machine has its schedule at AWS.

        Raises:
            KedgeError: AWS doesn't list the machine yet, or doesn't take the schedule.
        """
        guard_machine(self._tools, machine_id, self._find_own(machine_id))

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        """Let a range, or this computer's present address, reach port 22 of the run; AWS is asked only where it is new.

        Raises:
            KedgeError: the address can't be found out, or AWS doesn't allow it.
        """
        tools = self._tools
        record = tools.records.machine(check_id(machine_id))
        # Without a record nobody here knows its host key: an open port would be of no use.
        refuse_other_account_of(tools, record)
        return record is not None and reopen(tools, record.run_id, record.region, ssh_from)

    def destroy(self, machine_id: str) -> None:
        """Ask for a machine's end, of every instance that carries its id, and take its schedule away.

        Raises:
            KedgeError: AWS doesn't allow it.
        """
        living = [each for each in self._find_own(machine_id) if not each.is_gone]
        alive = {each.region for each in living if not self._terminate(each)}
        for region in {each.region for each in living} - alive:
            self._disarm(machine_id, region)

    def release(self, run_id: str) -> Sequence[str]:
        """Remove a run's role, groups and schedules, and settle its data volumes, once it has no machine left.

        Returns:
            What was removed or kept, one line each.

        Raises:
            StillBillingError: some of it isn't done yet; a second call goes on with the rest.
            KedgeError: AWS doesn't allow it.
        """
        tools = self._tools
        refuse_other_account(tools, check_id(run_id))
        record = tools.records.run(run_id)
        mine = {*record.groups, *record.volumes}
        machines = [item for item in tools.records.machines() if item.run_id == run_id]
        regions = mine | {item.region for item in machines} | tools.swept.get(run_id, set()) or tools.known_regions()
        found = find_instances(tools.session, regions, of_run(run_id))
        left = [each for each in (*found, *find_untagged(tools.session, machines, found)) if not each.is_gone]
        if left:
            names = ", ".join(sorted(each.machine_id for each in left))
            raise _unsettled(run_id, [f"it still has {names}"])
        lines = remove_belongings(tools, run_id, sorted(regions))
        for item in machines:
            tools.records.forget_machine(item.id)
        unfinished = [line for line in lines if line.startswith("kept") and "again" in line]
        if unfinished:
            raise _unsettled(run_id, unfinished)
        tools.records.forget_run(run_id)
        return lines

    def _find(self, machine_id: str) -> Sequence[Found]:
        record = self._tools.records.machine(check_id(machine_id))
        regions: Collection[str] = [record.region] if record else self._tools.known_regions()
        found = find_instances(self._tools.session, regions, of_machine(machine_id))
        return found or find_untagged(self._tools.session, [record] if record else [], found)

    def _find_own(self, machine_id: str) -> Sequence[Found]:
        """Find a machine; that there is none is true only in its own account."""
        found = self._find(machine_id)
        if not found:
            refuse_other_account_of(self._tools, self._tools.records.machine(machine_id))
        return found

    def _see_all(self, found: Sequence[Found]) -> list[Machine]:
        """Describe instances, and machines that were asked for and aren't among them."""
        listed = {each.machine_id for each in found}
        living = [self._see(each) for each in present(found)]
        unlisted = (see_unlisted(record, self._tools.clock.now()) for record in self._tools.records.machines())
        return [*living, *(machine for machine in unlisted if machine and machine.id not in listed)]

    def _see(self, found: Found) -> Machine:
        record = self._tools.records.machine(found.machine_id)
        return see_machine(found.instance, record, self._tools.key_file)

    def _terminate(self, found: Found) -> bool:
        """Ask for an instance's end; False where AWS doesn't know yet what it lists, and goes on running it."""
        try:
            self._tools.session.client("ec2", found.region).terminate_instances(
                InstanceIds=[found.instance["InstanceId"]]
            )
        except (ClientError, BotoCoreError) as err:
            if isinstance(err, ClientError) and code_of(err) == "InvalidInstanceID.NotFound":
                return False
            raise translate(err, f"machine {found.machine_id} can't be ended") from err
        return True

    def _disarm(self, machine_id: str, region: str) -> None:
        try:
            schedule.disarm(self._tools.session.client("scheduler", region), machine_id)
            if record := self._tools.records.machine(machine_id):
                self._tools.records.keep_machine(replace(record, armed=False))
        except KedgeError as err:
            # It would only end what has ended, and then remove itself; `release` tries again.
            _log.warning("%s", err.what)


def _unsettled(run_id: str, why: Sequence[str]) -> StillBillingError:
    return StillBillingError(
        f"not all that run {run_id} has is settled yet",
        why="; ".join(why),
        fix=f"give `kedge teardown {run_id}` again in some minutes",
    )
