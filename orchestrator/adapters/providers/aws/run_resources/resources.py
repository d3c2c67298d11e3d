"""A run's role, and its security group in each region: created with the first machine, removed at the teardown."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.cloud.api import RunResources
from orchestrator.adapters.cloud.model import Ready
from orchestrator.adapters.host.own_address import ask_own_network
from orchestrator.adapters.providers.aws.instances.choice import Choice, RunParts
from orchestrator.adapters.providers.aws.naming import SHARED_ROLE, placement_name, role_name
from orchestrator.adapters.providers.aws.record import Group
from orchestrator.adapters.providers.aws.run_resources.identity import has_identity, make_identity, remove_identity
from orchestrator.adapters.providers.aws.run_resources.network import (
    admit_peers,
    make_group,
    open_to,
    remove_groups,
)
from orchestrator.adapters.providers.aws.run_resources.placement import make_placement, remove_placements
from orchestrator.adapters.providers.aws.run_resources.policy import (
    allow_secrets,
    data_sets,
    named_buckets,
    write_policy,
)
from orchestrator.adapters.providers.aws.run_resources.secrets import refuse_shared, remove_secrets
from orchestrator.core.errors import KedgeError
from orchestrator.core.values.network import parse_address_range

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.model import Chosen
    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.adapters.providers.aws.context import AwsContext
    from orchestrator.adapters.providers.aws.own_network import OwnNetwork
    from orchestrator.adapters.providers.aws.record import AwsRun
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)

_LET_GO_IN = timedelta(minutes=2)
"""How long AWS may take to detach a group from an ended machine."""
_OR_SHARE = (
    "; where you may not make roles, an administrator makes one for all runs with "
    "`kedge bootstrap --provider aws --run-role`"
)
_SHARED = (
    "all runs of this account have one role (`bootstrap --run-role`): their machines can read, change and delete each "
    "other's results, and read every data set in the bucket"
)


class AwsRunResources(RunResources[Choice, RunParts]):
    """The role and the security groups of each run."""

    def __init__(self, aws: AwsContext) -> None:
        self._aws = aws

    def ensure(self, order: MachineOrder, chosen: Chosen[Choice]) -> Ready[RunParts]:
        """Create what is missing, and open port 22 as the order says; the user's own group is left as it is.

        Raises:
            KedgeError: AWS doesn't allow it.
        """
        group, is_new = _ensure(self._aws, order, chosen.native)
        _note_subnet(self._aws, order, chosen.native)
        placement, is_made = _place(self._aws, order, chosen.native)
        subnet_id = chosen.native.subnet_id
        own = chosen.native.own
        efa = order.num_nodes > 1 and chosen.native.type.has_efa and (own is None or own.serves_efa)
        shared = self._aws.records.run(order.run_id).shared_role
        profile = SHARED_ROLE if shared else role_name(order.run_id)
        return Ready(
            native=RunParts(group_id=group.id, profile=profile, placement=placement, efa=efa),
            is_new=is_new or is_made,
            token_parts=(group.id, *filter(None, (subnet_id, placement, "efa" if efa else ""))),
        )

    def renew(self, order: MachineOrder) -> None:
        """Drop what this launch needs from the run's record; other regions stay, for the teardown."""

        def drop(record: AwsRun) -> AwsRun:
            groups = {region: group for region, group in record.groups.items() if region != order.region}
            record = _note_reading(record, readable=False)
            return replace(record, role=False, shared_role=False, groups=groups)

        self._aws.records.change_run(order.run_id, drop, self._aws.clock)

    def reopen(self, run_id: str, region: str, ssh_from: str) -> bool:
        """Open port 22 of a run's machines to another range than the recorded one.

        No call if the record has this range. If no range is asked for, a recorded range of several addresses stays:
        somebody chose it.

        Raises:
            KedgeError: AWS doesn't allow it, or the group is gone.
        """
        aws = self._aws
        record = aws.records.run(run_id)
        known = record.groups.get(region)
        if known is None or not (ssh_from or known.is_single):
            return False
        wanted = parse_address_range(ssh_from) or ask_own_network()
        if known.ssh_from == wanted:
            return False
        group = _opened(aws, run_id, region, known, wanted)
        _note_group(aws, run_id, region, group)
        _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, wanted, known.ssh_from)
        return True

    def remove(self, run_id: str, places: Sequence[str], *, is_full: bool) -> Sequence[str]:
        """Remove a run's secrets, its security groups, its placement groups and its role.

        Raises:
            KedgeError: AWS doesn't allow it; the rest is tried again by the next call.
        """
        aws = self._aws
        record = aws.records.run(run_id) if is_full else None
        lines = [*remove_secrets(aws, run_id, aws.records.run(run_id), is_full=is_full)]
        for region in places:
            known = record.groups.get(region) if record else None
            ec2 = aws.session.client("ec2", region)
            lines += remove_groups(ec2, run_id, aws.clock, _LET_GO_IN, known=known)
            placed = record.placements.get(region, ()) if record else None
            lines += remove_placements(ec2, run_id, aws.clock, _LET_GO_IN, known=placed)
        if _has_own_role(aws, run_id, record) and remove_identity(aws.session.client("iam"), run_id):
            lines.append(f"removed role {role_name(run_id)}")
        return lines


def note_volumes(aws: AwsContext, run_id: str, region: str) -> None:
    """Write a region into the run's record: the teardown looks for data volumes there."""
    if region in aws.records.run(run_id).volumes:
        return
    account = aws.account_id()

    def add(record: AwsRun) -> AwsRun:
        return replace(record, volumes=tuple(dict.fromkeys((*record.volumes, region))), account=account)

    aws.records.change_run(run_id, add, aws.clock)


def isolation_caveats(aws: AwsContext) -> tuple[str, ...]:
    """Say what a run of this account is not protected from; nothing if that isn't known now."""
    try:
        shared = aws.account().shared_role
    except KedgeError:
        # Offers can be listed without an account level or a network.
        return ()
    return (_SHARED,) if shared else ()


def _ensure(aws: AwsContext, order: MachineOrder, choice: Choice) -> tuple[Group, bool]:
    """Return the region's group, and whether it or the role is new; no call if the record has both."""
    run_id, region, own = order.run_id, order.region, choice.own
    record = aws.records.run(run_id)
    is_new = not record.role or (region not in record.groups and not order.site.security_group)
    # Before the role is created: a refused range, or an unknown own address, must leave nothing behind.
    ssh_from = "" if order.site.security_group else _ssh_from(order, own)
    reads = bool(order.boot.secrets_url)
    if not record.role or (reads and not record.secrets.readable):
        shared = _take_or_make_role(aws, order, choice.account)
        account = aws.account_id()
        record = aws.records.change_run(
            run_id,
            lambda latest: replace(
                _note_reading(latest, readable=reads), role=True, shared_role=shared, account=account
            ),
            aws.clock,
        )
    if order.site.security_group:
        # Not recorded: kedge changes and deletes recorded groups.
        return Group(id=order.site.security_group, ssh_from=""), is_new
    known = record.groups.get(region)
    if known is None:
        ec2 = aws.session.client("ec2", region)
        vpc_id = own.vpc_id if own else ""
        group = make_group(ec2, run_id, ssh_from, aws.clock, site=order.site, vpc_id=vpc_id)
    else:
        group = _opened(aws, run_id, region, known, ssh_from)
    if order.num_nodes > 1 and not group.peers:
        group = admit_peers(aws.session.client("ec2", region), group, aws.clock)
    if known != group:
        _note_group(aws, run_id, region, group)
    return group, is_new


def _place(aws: AwsContext, order: MachineOrder, choice: Choice) -> tuple[str, bool]:
    """Return the placement group of a run's machines (empty for none), and whether it was created just now."""
    if order.num_nodes == 1 or not choice.type.clusters:
        return "", False
    run_id, region = order.run_id, order.region
    name = placement_name(run_id, order.zone or region)
    if name not in aws.records.run(run_id).placements.get(region, ()):
        # Recorded before it is created: a command that dies in between leaves nothing that the teardown doesn't know.
        def add(record: AwsRun) -> AwsRun:
            named = (*record.placements.get(region, ()), name)
            return replace(record, placements={**record.placements, region: tuple(dict.fromkeys(named))})

        aws.records.change_run(run_id, add, aws.clock)
    return name, make_placement(aws.session.client("ec2", region), name, run_id, order.site)


def _note_subnet(aws: AwsContext, order: MachineOrder, choice: Choice) -> None:
    """Note which of the user's own subnets a run's first machine is in, for those that follow."""
    if order.num_nodes == 1 or choice.own is None:
        return
    aws.records.change_run(
        order.run_id,
        lambda record: replace(record, subnets={**record.subnets, order.zone: choice.subnet_id}),
        aws.clock,
    )


def _note_reading(record: AwsRun, *, readable: bool) -> AwsRun:
    """Note whether the role may read secrets; nothing in the record of a run that has none."""
    known = record.secrets
    return replace(record, secrets=replace(known, readable=readable)) if known.readable != readable else record


def _note_group(aws: AwsContext, run_id: str, region: str, group: Group) -> None:
    def add(record: AwsRun) -> AwsRun:
        account = record.account or aws.account_id()
        return replace(record, groups={**record.groups, region: group}, account=account)

    aws.records.change_run(run_id, add, aws.clock)


def _has_own_role(aws: AwsContext, run_id: str, record: AwsRun | None) -> bool:
    """Tell whether a run may have its own role; users of the shared role may not be allowed to delete roles."""
    if record is not None:
        return not record.shared_role
    return not aws.account().shared_role or has_identity(aws.session.client("iam"), run_id)


def _take_or_make_role(aws: AwsContext, order: MachineOrder, account: Account) -> bool:
    """Create the run's role, unless all runs share one; return whether they do."""
    if account.shared_role:
        return _share_role(order)
    policy = write_policy(
        account.bucket,
        order.run_id,
        data_sets(order.data, account.bucket),
        others=named_buckets(order.data, account.read_buckets),
        partition=account.partition,
        secrets=allow_secrets(account, order.run_id) if order.boot.secrets_url else (),
    )
    try:
        make_identity(aws.session.client("iam"), order.run_id, policy, account, aws.clock, order.site)
    except KedgeError as err:
        # The cached account level may be a day old: an administrator may have created the role since.
        if not aws.fresh_account().shared_role:
            raise KedgeError(err.what, why=err.why, fix=f"{err.fix}{_OR_SHARE}") from err
        _log.warning("%s", _SHARED)
        return _share_role(order)
    _log.info("made role %s", role_name(order.run_id))
    return False


def _share_role(order: MachineOrder) -> bool:
    """Take the role of all runs, unless the machine is to read secrets with it."""
    if order.boot.secrets_url:
        raise refuse_shared()
    return True


def _ssh_from(order: MachineOrder, own: OwnNetwork | None) -> str:
    """Return the range to admit; a jump host in the network connects from one of the network's addresses."""
    if own is not None and order.site.is_private and not order.ssh_from:
        return own.cidr
    return parse_address_range(order.ssh_from) or ask_own_network()


def _opened(aws: AwsContext, run_id: str, region: str, known: Group, ssh_from: str) -> Group:
    try:
        return open_to(aws.session.client("ec2", region), known, ssh_from)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"machines of run {run_id} can't be opened to {ssh_from}") from err
