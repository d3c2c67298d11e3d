"""The provider: rents droplets, lists them, deletes them, and leaves nothing behind.

`do` and `amd` are two lines of the registry over this module: what they differ in is the site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.ids import check_id
from orchestrator.adapters.own_address import ask_own_network
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.providers.digitalocean.belongings import remove_belongings, reopen
from orchestrator.adapters.providers.digitalocean.catalog import read_catalog, read_snapshot, refresh_snapshot
from orchestrator.adapters.providers.digitalocean.claim import claim
from orchestrator.adapters.providers.digitalocean.creating import has_failed
from orchestrator.adapters.providers.digitalocean.creation import create_droplet
from orchestrator.adapters.providers.digitalocean.droplets import (
    Droplet,
    droplets_of_run,
    every_droplet,
    identify,
    read_recorded,
)
from orchestrator.adapters.providers.digitalocean.ending import read_self_delete
from orchestrator.adapters.providers.digitalocean.ending_droplets import end_machine, find_droplet
from orchestrator.adapters.providers.digitalocean.endings import why_ended
from orchestrator.adapters.providers.digitalocean.offers import plan_offers
from orchestrator.adapters.providers.digitalocean.record import Records
from orchestrator.adapters.providers.digitalocean.settling import complete_droplet, settle_twins
from orchestrator.adapters.providers.digitalocean.site import read_site
from orchestrator.adapters.providers.digitalocean.spaces import open_spaces
from orchestrator.adapters.providers.digitalocean.supplies import droplet_supplies
from orchestrator.adapters.providers.digitalocean.sweeping import find_leftovers
from orchestrator.adapters.providers.digitalocean.tools import Account, Tools
from orchestrator.adapters.providers.digitalocean.view import see_machine, see_unlisted
from orchestrator.adapters.providers.digitalocean.volumes import place_volumes
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.machine import MachineState
from orchestrator.core.network import parse_address_range
from orchestrator.core.sweep import Sweep

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord
    from orchestrator.adapters.providers.digitalocean.spaces import Spaces
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine, MachineEnd, MachineOrder
    from orchestrator.core.offer import Offer
    from orchestrator.core.ports import Supplies


def make(
    context: Context,
    *,
    name: str,
    endpoint: str,
    endpoint_name: str,
    token_names: Sequence[str],
    delete_token_name: str,
    sister: str = "",
) -> Backing:
    """Make the provider, its store and its stage for the registry; nothing is contacted.

    Args:
        context: the laptop's.
        name: the provider's.
        endpoint: where its API is.
        endpoint_name: the variable that says another place.
        token_names: the variables that hold the token, the first one that is set counts.
        delete_token_name: the variable with the token that a droplet deletes itself with.
        sister: the site that may sell what this one doesn't; empty for none.
    """
    site = read_site(
        context.environ, name=name, endpoint=endpoint, endpoint_name=endpoint_name, token_names=token_names
    )
    folder = context.state_dir / name
    api = Api(site, context.clock)
    spaces = open_spaces(context.environ, data_memory=folder / "data", clock=context.clock)
    tools = Tools(
        site=site,
        api=api,
        account=Account(api),
        records=Records(folder),
        clock=context.clock,
        key_file=context.key_file,
        ending=read_self_delete(
            context.environ, endpoint=site.endpoint, token_name=delete_token_name, ca_file=site.ca_file
        ),
        claims=folder / "claims",
    )
    provider = DigitalOceanProvider(tools, spaces, sister)
    if spaces is None:
        return Backing(provider=provider, store=None, stage=None)
    return Backing(
        provider=provider, store=spaces.store, stage=spaces.stage, data=spaces.data, store_caveats=spaces.caveats
    )


class DigitalOceanProvider:
    """Implements `core.ports.Provider`."""

    def __init__(self, tools: Tools, spaces: Spaces | None, sister: str = "") -> None:
        self.name = tools.site.name
        # Its first connection brings it the agent: after that, it takes code and the command from the bucket.
        self.boots_alone = spaces is not None
        self.offers_basis = "live"
        self.caveats = tools.ending.caveats
        self.ends_by_itself = bool(tools.ending.token)
        self._tools = tools
        self._spaces = spaces
        self._sister = sister

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List what is for sale now and fits the wishes, the cheapest first.

        Raises:
            BadRequestError: a wish that the site doesn't know, or data volumes in different regions.
            NoCapacityError: what fits is offered nowhere.
        """
        catalog = read_catalog(self._tools.api)
        self.offers_basis = catalog.basis
        placed = place_volumes(self._tools.api, resources) if catalog.is_live else resources
        return plan_offers(catalog, placed, self.name, _sold_elsewhere(placed, self._sister))

    def refresh_offers(self) -> str:
        """Write the site's part of the snapshot anew, and say where it lies.

        Raises:
            KedgeError: the API can't be asked; the snapshot stays as it was.
        """
        return refresh_snapshot(self._tools.api, self._tools.clock)

    def machines(self) -> Sequence[Machine]:
        """List every machine that isn't gone, those included that were asked for just now.

        Raises:
            KedgeError: the API doesn't answer.
        """
        return self._machines(self._recognised())

    def sweep(self) -> Sweep:
        """List all that carries kedge's tags.

        Raises:
            BadRequestError: there is no token.
            KedgeError: the API doesn't answer, or doesn't accept it.
        """
        droplets = self._recognised()
        return Sweep(machines=tuple(self._machines(droplets)), leftovers=find_leftovers(self._tools.api, droplets))

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already carries the order's id.

        Raises:
            NoCapacityError: this offer can't be had now; the next may.
            StillBillingError: it may have been created, and the API doesn't tell.
            ConflictError: another command of this computer is creating it.
            KedgeError: anything else; nothing of the machine is left.
        """
        check_id(order.run_id)
        with claim(self._tools.claims, order.id):
            return self._see(create_droplet(self._tools, order))

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None when the API knows no droplet by its id, lists none with its tag, and would.

        A droplet that is known by the id in this laptop's record is the machine, whatever its tags say.

        Raises:
            BadRequestError: this laptop's record of it is of another account.
            KedgeError: the API doesn't tell.
        """
        record = self._tools.records.machine(check_id(machine_id))
        droplet = find_droplet(self._tools, machine_id, record)
        if droplet is not None:
            return self._see(droplet)
        if record is None:
            return None
        self._tools.refuse_other_account_of(record)
        return self._see_missing(record)

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        """Say that a droplet is powered off, or couldn't be created; the API keeps nothing about one that is deleted.

        Raises:
            KedgeError: the API doesn't answer.
        """
        return why_ended(self._tools, check_id(machine_id))

    def supplies(self, machine_id: str) -> Supplies | None:
        """Say what a droplet must be brought: its agent, and the secrets that user-data must not hold."""
        record = self._tools.records.machine(check_id(machine_id))
        return droplet_supplies(
            self._tools.ending,
            self._spaces,
            key_file=self._tools.key_file,
            run_id=record.run_id if record else machine_id,
        )

    def pin(self, machine_id: str, host_key: str) -> None:
        """Remember the host key that has replaced a machine's provisional one."""
        record = self._tools.records.machine(machine_id)
        if record is None:
            raise KedgeError(f"this computer has no record of machine {machine_id}")
        self._tools.records.keep_machine(replace(record, host_key=host_key, pinned=True))

    def guard(self, machine_id: str) -> None:
        """Complete what a creation that died has left undone.

        Nothing at the site ends a droplet from outside: what does, if it forgets itself, is `kedge reap`.

        Raises:
            KedgeError: the API doesn't tell, or doesn't allow it.
        """
        droplet = settle_twins(self._tools, check_id(machine_id))
        if droplet is not None:
            complete_droplet(self._tools, droplet)

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        """Let a range, or this computer's present address, reach port 22 of the machine's run.

        Raises:
            KedgeError: the address can't be found out, or the API doesn't allow it.
        """
        tools = self._tools
        record = tools.records.machine(check_id(machine_id))
        # Without a record nobody here knows its host key: an open port would be of no use.
        tools.refuse_other_account_of(record)
        return record is not None and reopen(tools, record.run_id, parse_address_range(ssh_from) or ask_own_network())

    def destroy(self, machine_id: str) -> None:
        """Delete a machine's droplet, of every one that carries its id, with its reserved addresses.

        Raises:
            KedgeError: the API doesn't allow it, or doesn't confirm it.
        """
        end_machine(self._tools, check_id(machine_id))

    def release(self, run_id: str) -> Sequence[str]:
        """Remove a run's firewall, project, key and tags, and settle its data volumes, once it has no machine left.

        Returns:
            What was removed or kept, one line each.

        Raises:
            StillBillingError: some of it isn't done yet; a second call goes on with the rest.
            KedgeError: the API doesn't allow it.
        """
        tools = self._tools
        tools.refuse_other_account(check_id(run_id))
        records = [record for record in tools.records.machines() if record.run_id == run_id]
        left = {droplet.machine_id or f"droplet {droplet.id}" for droplet in droplets_of_run(tools.api, run_id)}
        left |= {record.id for record in records if self._see_unlisted(record)}
        if left:
            raise _unsettled(run_id, [f"it still has {', '.join(sorted(left))}"])
        lines = remove_belongings(tools, run_id)
        for record in records:
            tools.records.forget_machine(record.id)
        unfinished = [line for line in lines if line.startswith("kept") and "again" in line]
        if unfinished:
            raise _unsettled(run_id, unfinished)
        tools.records.forget_run(run_id)
        return lines

    def _recognised(self) -> Sequence[Droplet]:
        """List all droplets of kedge's; those of this computer are known by their ids, whatever tags they have lost."""
        records = {record.droplet_id: record for record in self._tools.records.machines() if record.droplet_id}
        droplets = every_droplet(self._tools.api)
        return [identify(each, records[each.id]) if each.id in records else each for each in droplets]

    def _machines(self, droplets: Iterable[Droplet]) -> list[Machine]:
        found = self._see_all(droplets)
        listed = {machine.id.lower() for machine in found}
        records = (record for record in self._tools.records.machines() if record.id.lower() not in listed)
        return [*found, *filter(None, map(self._see_unlisted, records))]

    def _see_all(self, droplets: Iterable[Droplet]) -> list[Machine]:
        """Describe droplets, one for each machine."""
        first: dict[str, Droplet] = {}
        for droplet in droplets:
            if droplet.machine_id:
                first.setdefault(droplet.machine_id, droplet)
        return [self._see(droplet) for droplet in first.values()]

    def _see(self, droplet: Droplet) -> Machine:
        record = self._tools.records.machine(droplet.machine_id)
        seen = see_machine(droplet, record, self.name, self._tools.key_file)
        return self._end_failed(seen, record, droplet)

    def _see_unlisted(self, record: MachineRecord) -> Machine | None:
        """Describe what the listings leave out: a droplet that the API knows by its id, or one that may yet come."""
        droplet = read_recorded(self._tools.api, record)
        return self._see(droplet) if droplet is not None else self._see_missing(record)

    def _see_missing(self, record: MachineRecord) -> Machine | None:
        """Describe a machine of which the API knows no droplet."""
        seen = see_unlisted(record, self.name, self._tools.clock.now())
        return self._end_failed(seen, record, None) if seen is not None else None

    def _end_failed(self, seen: Machine, record: MachineRecord | None, droplet: Droplet | None) -> Machine:
        """Describe a machine whose creation has failed as ending: it never boots, and bills until it is deleted."""
        if seen.state is not MachineState.BOOTING or not has_failed(self._tools.api, record, droplet):
            return seen
        return replace(seen, state=MachineState.ENDING)


def _sold_elsewhere(resources: Resources, sister: str) -> str:
    """Advise another site that sells what is wished for, by its snapshot; empty where none does."""
    if not sister or resources.instance_type is not None or resources.accelerators is None or resources.volumes:
        return ""
    anywhere = replace(resources, regions=())
    try:
        plan_offers(read_snapshot(sister), anywhere, sister)
    except KedgeError:
        return ""
    return f"the AMD Developer Cloud sells it: --provider {sister}"


def _unsettled(run_id: str, why: Sequence[str]) -> StillBillingError:
    return StillBillingError(
        f"not all that run {run_id} has is settled yet",
        why="; ".join(why),
        fix=f"give `kedge teardown {run_id}` again in some minutes",
    )
