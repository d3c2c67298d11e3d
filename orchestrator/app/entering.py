"""Who may enter a machine that a plan rents: known before the plan is shown, and agreed to with it."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.adapters.own_address import ask_own_network
from orchestrator.adapters.providers import is_here
from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import Plan


def with_entrance(spec: LaunchSpec, plan: Plan) -> Plan:
    """Write into a plan who may reach the machine that it rents over SSH: this computer, where nobody else is said.

    The run itself doesn't keep this computer's address: a later command opens its machines to the address of then.

    Raises:
        BadRequestError: nobody is said, and this computer's address can't be found out.
    """
    if not any(_rents(action) for action in plan.actions) or is_here(spec.provider):
        return plan
    ssh_from, whose = _entrance(spec)
    if not ssh_from:
        return plan
    actions = tuple(
        replace(each, ssh_from=ssh_from) if isinstance(each, CreateMachine) else each for each in plan.actions
    )
    note = f"SSH to the machine is open to {ssh_from}{whose}, and to nobody else"
    return replace(plan, actions=actions, notes=(*plan.notes, note))


def _rents(action: Action) -> bool:
    """Tell whether a machine is rented; nothing is at the prices of a snapshot, such as those of a laptop offline."""
    return isinstance(action, CreateMachine) and all(offer.live for offer in action.offers)


def _entrance(spec: LaunchSpec) -> tuple[str, str]:
    """Return the range, and whose it is; none where the user's own security group, or network, decides."""
    site = spec.resources.site
    if spec.ssh_from or site.security_group or site.is_private:
        return ("" if site.security_group else spec.ssh_from), " (--ssh-from)"
    try:
        return ask_own_network(), " (this computer)"
    except UnreachableError as err:
        raise BadRequestError(err.what, why=err.why, fix=err.fix) from err
