"""What a run has besides machines: its role, and its security group in each region; made with its first machine."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.own_address import ask_own_network
from orchestrator.adapters.providers.aws.identity import make_identity
from orchestrator.adapters.providers.aws.naming import SHARED_ROLE, role_name
from orchestrator.adapters.providers.aws.network import make_group, open_to
from orchestrator.adapters.providers.aws.policy import data_sets, named_buckets, write_policy
from orchestrator.adapters.providers.aws.record import Group
from orchestrator.core.errors import KedgeError
from orchestrator.core.network import parse_address_range

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account import Account
    from orchestrator.adapters.providers.aws.own_network import OwnNetwork
    from orchestrator.adapters.providers.aws.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)

_OR_SHARE = (
    "; where you may not make roles, an administrator makes one for all runs with "
    "`kedge bootstrap --provider aws --run-role`"
)
_SHARED = (
    "all runs of this account have one role (`bootstrap --run-role`): their machines can read, change and delete each "
    "other's results, and read every data set in the bucket"
)


def ensure_belongings(
    tools: Tools, order: MachineOrder, account: Account, own: OwnNetwork | None
) -> tuple[Group, bool]:
    """Make what is missing of what the order's run needs, and open port 22 to whom the order says.

    No call where the record says that everything is there. A security group of the user's own is taken as it is.

    Returns:
        The region's group, and whether the role or the group is new.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    run_id, region = order.run_id, order.region
    record = tools.records.run(run_id)
    is_new = not record.role or (region not in record.groups and not order.site.security_group)
    # Before the role is made: a range that is refused, or an address that can't be found out, leaves nothing behind.
    ssh_from = "" if order.site.security_group else _ssh_from(order, own)
    if not record.role:
        shared = _take_or_make_role(tools, order, account)
        record = replace(record, role=True, shared_role=shared, account=tools.account_id())
        tools.records.keep_run(record)
    if order.site.security_group:
        # No record of it: what a record names is opened, closed and deleted.
        return Group(id=order.site.security_group, ssh_from=""), is_new
    known = record.groups.get(region)
    if known is None:
        ec2 = tools.session.client("ec2", region)
        vpc_id = own.vpc_id if own else ""
        group = make_group(ec2, run_id, ssh_from, tools.clock, site=order.site, vpc_id=vpc_id)
    else:
        group = _opened(tools, run_id, region, known, ssh_from)
    if known != group:
        tools.records.keep_run(replace(record, groups={**record.groups, region: group}, account=tools.account_id()))
    return group, is_new


def isolation_caveats(tools: Tools) -> tuple[str, ...]:
    """Say what a run of this account is not protected from; nothing where that can't be told now."""
    try:
        shared = tools.account().shared_role
    except KedgeError:
        # Offers are listed without an account level, and without a network.
        return ()
    return (_SHARED,) if shared else ()


def profile_name(tools: Tools, run_id: str) -> str:
    """Name the instance profile that a run's machines get."""
    return SHARED_ROLE if tools.records.run(run_id).shared_role else role_name(run_id)


def reopen(tools: Tools, run_id: str, region: str, wanted: str) -> bool:
    """Open port 22 of a run's machines to another range than the one that its record has; True when it was another.

    No call where the record has this one. Without a wish, a range of several addresses stays: it was somebody's choice.

    Raises:
        KedgeError: AWS doesn't allow it, or the group is gone.
    """
    record = tools.records.run(run_id)
    known = record.groups.get(region)
    if known is None or not (wanted or known.is_single):
        return False
    ssh_from = parse_address_range(wanted) or ask_own_network()
    if known.ssh_from == ssh_from:
        return False
    group = _opened(tools, run_id, region, known, ssh_from)
    tools.records.keep_run(replace(record, groups={**record.groups, region: group}))
    _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, ssh_from, known.ssh_from)
    return True


def note_volumes(tools: Tools, run_id: str, region: str) -> None:
    """Remember that a run uses data volumes of a region, before any is made there."""
    record = tools.records.run(run_id)
    if region not in record.volumes:
        tools.records.keep_run(replace(record, volumes=(*record.volumes, region), account=tools.account_id()))


def _take_or_make_role(tools: Tools, order: MachineOrder, account: Account) -> bool:
    """Make the run's role, unless all runs have one; return whether they have."""
    if account.shared_role:
        return True
    policy = write_policy(
        account.bucket,
        order.run_id,
        data_sets(order.data, account.bucket),
        others=named_buckets(order.data, account.read_buckets),
        partition=account.partition,
    )
    try:
        make_identity(tools.session.client("iam"), order.run_id, policy, account, tools.clock, order.site)
    except KedgeError as err:
        # What is remembered of the account may be a day old: an administrator may have made the role since.
        if not tools.fresh_account().shared_role:
            raise KedgeError(err.what, why=err.why, fix=f"{err.fix}{_OR_SHARE}") from err
        _log.warning("%s", _SHARED)
        return True
    _log.info("made role %s", role_name(order.run_id))
    return False


def _ssh_from(order: MachineOrder, own: OwnNetwork | None) -> str:
    """Whoever goes through a host in the network comes from one of the network's addresses."""
    if own is not None and order.site.is_private and not order.ssh_from:
        return own.cidr
    return parse_address_range(order.ssh_from) or ask_own_network()


def _opened(tools: Tools, run_id: str, region: str, known: Group, ssh_from: str) -> Group:
    try:
        return open_to(tools.session.client("ec2", region), known, ssh_from)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"machines of run {run_id} can't be opened to {ssh_from}") from err
