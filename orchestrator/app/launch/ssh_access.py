"""Decides who may reach a new machine over SSH, before the plan is shown: the user confirms it with the plan."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.adapters.host.own_address import ask_own_network
from orchestrator.adapters.providers import is_here
from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import Plan


def with_ssh_access(spec: LaunchSpec, plan: Plan) -> Plan:
    """Add to a plan who may reach its machine over SSH: by default, this computer.

    The run itself doesn't store this computer's address: later commands open its machines to their current address.

    Raises:
        BadRequestError: no range is set, and this computer's address can't be determined.
    """
    if not any(rents(action) for action in plan.actions) or is_here(spec.provider):
        return plan
    ssh_from, whose = _ssh_access(spec)
    if not ssh_from:
        return plan
    actions = tuple(
        replace(each, ssh_from=ssh_from) if isinstance(each, CreateMachine) else each for each in plan.actions
    )
    note = f"SSH to the machine is open to {ssh_from}{whose}, and to nobody else"
    return replace(plan, actions=actions, notes=(*plan.notes, note))


def rents(action: Action) -> bool:
    """Tell whether a machine is rented; offers from a snapshot, as on an offline laptop, are never rented."""
    return isinstance(action, CreateMachine) and all(offer.live for offer in action.offers)


def _ssh_access(spec: LaunchSpec) -> tuple[str, str]:
    """Return the range and its description; empty if the user's own security group or network decides."""
    site = spec.resources.site
    if spec.ssh_from or site.security_group or site.is_private:
        return ("" if site.security_group else spec.ssh_from), " (--ssh-from)"
    try:
        return ask_own_network(), " (this computer)"
    except UnreachableError as err:
        raise BadRequestError(err.what, why=err.why, fix=err.fix) from err
