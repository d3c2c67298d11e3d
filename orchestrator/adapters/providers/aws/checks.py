"""The probes of `kedge doctor --provider aws`: they check an account as a launch would use it, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.probing import look_at_clock, look_at_offers
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.bucket import look_at_bucket, own_s3
from orchestrator.adapters.providers.aws.account.level import SCHEDULER_ROLE, Account, find_account
from orchestrator.adapters.providers.aws.account.permissions import look_at_permissions
from orchestrator.adapters.providers.aws.market.quotas import QuotaTooSmallError, ask_limit, console_url, quota_of
from orchestrator.adapters.providers.aws.own_network import find_own_network, require_default_network
from orchestrator.adapters.providers.aws.provider import make
from orchestrator.adapters.providers.aws.run_resources import schedule
from orchestrator.core.checkup import OFFERS, QUOTA, Probe, ProbeResult, Verdict
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers import Context
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Provider

_BOOTSTRAP = "run `kedge bootstrap --provider aws`, which shows what it makes before it does"

_SIGN_IN_SETTINGS = frozenset(
    {
        *("aws_access_key_id", "credential_process", "login_session", "role_arn"),
        *("sso_session", "sso_start_url", "web_identity_token_file"),
    }
)
"""Settings of a profile; each is a source of credentials."""


def make_probes(context: Context, resources: Resources) -> Sequence[Probe]:
    """List the probes, in the order in which a launch needs what they check.

    Raises:
        BadRequestError: the profile or the region is missing.
    """
    session = AwsSession(region=resources.regions[0] if resources.regions else None, environ=context.environ)
    checkup = _Checkup(session, context, resources, make(context).provider)
    return (
        Probe(name="clock", look=checkup.clock),
        Probe(name="credentials", look=checkup.credentials, vital=True),
        Probe(name="permissions", look=checkup.permissions),
        Probe(name="account level", look=checkup.account_level),
        Probe(name="bucket", look=checkup.bucket),
        Probe(name="guards", look=checkup.guards),
        Probe(name="network", look=checkup.network),
        Probe(name=OFFERS, look=checkup.offers),
        Probe(name=QUOTA, look=checkup.quota),
    )


def look_at_sign_in(context: Context) -> ProbeResult | None:
    """Ask STS once whose credentials these are. None if there are none; a machine's own role doesn't count.

    Raises:
        KedgeError: AWS doesn't accept them, or doesn't answer.
    """
    variables = PROVIDERS["aws"].sign_in
    in_environment = variables is not None and any(context.environ.get(name) for name in variables.variables)
    # Without credentials, the SDK asks the instance metadata service: a network request, slow if nobody answers.
    if not in_environment and not _SIGN_IN_SETTINGS & set(Session().get_scoped_config()):
        return None
    session = AwsSession(environ=context.environ)
    try:
        caller = session.client("sts", single_shot=True).get_caller_identity()
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the AWS account can't be used") from err
    who = f"account {caller['Account']} as {caller['Arn']}"
    if not session.said:
        return Verdict.WARNING, f"{who}; no region is set", "set AWS_REGION, or name one with --region"
    return Verdict.OK, who, ""


def look_at_guard(context: Context, machine: Machine) -> ProbeResult:
    """Read a machine's schedule back: it must end this machine soon after its deadline.

    Raises:
        KedgeError: AWS refuses, or doesn't answer.
    """
    client = AwsSession(environ=context.environ).client("scheduler", machine.region or None)
    at = schedule.read_back(client, machine.id, machine.provider_id)
    if at is None:
        return Verdict.FAILED, "no schedule at AWS ends this machine", "report this: if the machine hangs, it bills on"
    if at > machine.deadline_at + 2 * schedule.LATER:
        return Verdict.FAILED, f"its schedule ends it at {at:%H:%M} UTC", "report this: it would bill for too long"
    return Verdict.OK, f"a schedule at AWS terminates it at {at:%H:%M} UTC", ""


class _Checkup:
    """The probes of one account; what several need is requested once."""

    def __init__(self, session: AwsSession, context: Context, resources: Resources, provider: Provider) -> None:
        self._session = session
        self._context = context
        self._resources = resources
        self._provider = provider

    def clock(self) -> ProbeResult:
        return look_at_clock(self._session.client("sts").meta.endpoint_url, self._context.clock)

    def credentials(self) -> ProbeResult:
        return Verdict.OK, f"account {self._caller['Account']} as {self._caller['Arn']}", ""

    def permissions(self) -> ProbeResult:
        try:
            shared_role = self._account is not None and self._account.shared_role
        except KedgeError:
            # Simulate the policy all the same: that shows which permission is missing.
            shared_role = False
        return look_at_permissions(self._session, self._caller["Arn"], self._caller["Account"], shared_role=shared_role)

    def account_level(self) -> ProbeResult:
        account = self._account
        if account is None:
            return Verdict.FAILED, "this account isn't set up for kedge", _BOOTSTRAP
        return Verdict.OK, f"in {account.region}", ""

    def bucket(self) -> ProbeResult:
        account = self._account
        if account is None:
            return Verdict.FAILED, "none yet", _BOOTSTRAP
        client = own_s3(self._session, self._caller["Account"], account.region)
        try:
            found = look_at_bucket(client, account.bucket)
        except (ClientError, BotoCoreError) as err:
            raise translate(err, f"the bucket {account.bucket} can't be read") from err
        if found == "absent":
            return Verdict.FAILED, f"{account.bucket} is gone", f"{_BOOTSTRAP}; it makes what is missing"
        if found == "forbidden":
            fix = "have its policy, or yours, allow it: docs/aws-permissions.md has what is enough"
            return Verdict.FAILED, f"{account.bucket} isn't this account's, or its policy denies you access", fix
        return Verdict.OK, f"{account.bucket} in {account.region}, this account's own", ""

    def guards(self) -> ProbeResult:
        """Check that a schedule can end a machine from outside at its deadline."""
        iam = self._session.client("iam")
        try:
            role = iam.get_role(RoleName=SCHEDULER_ROLE)["Role"]
        except (ClientError, BotoCoreError) as err:
            if isinstance(err, ClientError) and code_of(err) == "NoSuchEntity":
                return Verdict.FAILED, "no role for schedules: nothing would end a hung machine", _BOOTSTRAP
            raise translate(err, f"the role {SCHEDULER_ROLE} can't be read") from err
        trusted = str(role.get("AssumeRolePolicyDocument", ""))
        if "scheduler.amazonaws.com" not in trusted:
            return Verdict.FAILED, f"{SCHEDULER_ROLE} no longer trusts EventBridge Scheduler", _BOOTSTRAP
        return Verdict.OK, "each machine gets a schedule that terminates it at its deadline", ""

    def network(self) -> ProbeResult:
        """Check the user's own network, if the settings name one; else the default VPC."""
        return self._own_network() if self._resources.site.names_network else self._default_network()

    def _own_network(self) -> ProbeResult:
        """Look it up as a launch does: one region that has it is enough."""
        missing: list[NotInRegionError] = []
        for region in self._resources.regions or (self._session.region,):
            try:
                own = find_own_network(self._session.client("ec2", region), self._resources.site)
            except NotInRegionError as err:
                missing.append(err)
                continue
            if own is not None:
                subnets = len(set(own.subnets.values()))
                group = own.group_id or "a security group for each run"
                return Verdict.OK, f"your own in {region}: {own.vpc_id}, subnets: {subnets}, {group}", ""
        raise missing[0]

    def _default_network(self) -> ProbeResult:
        region = self._session.region
        ec2 = self._session.client("ec2")
        try:
            require_default_network(ec2)
            zones = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        except (ClientError, BotoCoreError) as err:
            raise translate(err, f"the networks of {region} can't be listed") from err
        if not zones:
            make_subnet = f"aws ec2 create-default-subnet --region {region} --availability-zone {region}a"
            return Verdict.FAILED, f"the default VPC of {region} has no subnet", f"make one: `{make_subnet}`"
        return Verdict.OK, f"the default VPC of {region}, {len(zones)} zones", ""

    def offers(self) -> ProbeResult:
        return look_at_offers(self._provider, self._resources)

    def quota(self) -> ProbeResult:
        """Request the quota that the first offer counts against.

        Raises:
            QuotaTooSmallError: no fitting machine has room in its quota.
        """
        try:
            offer = self._provider.offers(self._resources)[0]
        except QuotaTooSmallError:
            raise
        except (KedgeError, IndexError):
            return Verdict.WARNING, "not looked at", "fix 'offers' first"
        quota = quota_of(offer.instance_type, spot=offer.spot)
        if quota is None:
            return Verdict.WARNING, f"kedge doesn't know the quota of {offer.instance_type}", "see Service Quotas"
        page = console_url(offer.region, quota)
        try:
            limit = ask_limit(self._session.client("service-quotas", offer.region), quota)
        except (ClientError, BotoCoreError) as err:
            raise translate(err, "the quota can't be read") from err
        if limit is None:
            return Verdict.WARNING, f"unknown: {quota.code} ({quota.name}) can't be read", f"see {page}"
        needed = offer.cpus * self._resources.num_nodes
        return Verdict.OK, f"{limit:.0f} vCPUs in {offer.region} ({quota.code}, {quota.name}); {needed} needed", ""

    @cached_property
    def _caller(self) -> Any:
        try:
            return self._session.client("sts").get_caller_identity()
        except (ClientError, BotoCoreError) as err:
            raise translate(err, "the AWS account can't be used") from err

    @cached_property
    def _account(self) -> Account | None:
        return find_account(self._session)
