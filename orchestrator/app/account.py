"""Use cases for the account level: plan, make and remove what kedge needs once in an account."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.host.settings import Settings
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.account_resources import cache_name, forget_account
from orchestrator.adapters.providers.aws.account.level import Account, account_region
from orchestrator.adapters.providers.aws.account.plan import (
    AccountChange,
    apply_account,
    discard_account,
    plan_account,
)
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from orchestrator.adapters.providers.aws.account_removal import AccountRemoval, plan_removal, remove_account
from orchestrator.adapters.providers.aws.record import Records
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.units import parse_usd


class AccountLevel:
    """A provider's account level, accessed with the credentials of the user's shell."""

    def __init__(self, provider: str, region: str | None, settings: Settings) -> None:
        """Choose an account; nothing is contacted.

        Args:
            provider: only `aws` has an account level.
            region: None means the region of the shell or the profile.
            settings: the user's environment, and the paths of what launches remember of the account.

        Raises:
            BadRequestError: the provider has no account level, or the profile is unknown.
        """
        if provider != "aws":
            raise BadRequestError(
                f"there is nothing to set up at the provider {provider!r}",
                why="only an AWS account needs a bucket, a boundary and a role before the first launch",
                fix="say --provider aws",
            )
        self._session = AwsSession(region=region, environ=settings.environ)
        self._clock = SystemClock()
        self._folder = settings.state_dir / provider
        self._cache_dir = self._folder / cache_name(settings.environ)

    @contextmanager
    def planned(self, requirements: AccountSettings) -> Iterator[AccountChange]:
        """Plan the changes; if they aren't applied within the block, nothing is left of the plan.

        Raises:
            BadRequestError: the account level is in another region, or a requirement can't be met.
            KedgeError: AWS refused.
        """
        template = resource("infra", "aws", "account.yaml").read_text(encoding="utf-8")
        change = plan_account(self._session, template, requirements, self._clock)
        try:
            yield change
        finally:
            discard_account(self._session, change)

    def apply(self, change: AccountChange) -> Account:
        """Apply planned changes.

        Raises:
            KedgeError: AWS refused, or didn't finish in time.
        """
        account = apply_account(self._session, change, self._clock)
        forget_account(self._cache_dir, self._clock)
        return account

    def plan_removal(self) -> AccountRemoval | None:
        """List what a removal would remove; None if there is nothing.

        Raises:
            BadRequestError: the account level is in another region.
            ConflictError: runs need it.
        """
        home = account_region(self._session)
        if home and home != self._session.region:
            raise BadRequestError(f"the account level is in {home}", fix=f"use --region {home}")
        return plan_removal(self._session, Records(self._folder).regions())

    def remove(self, removal: AccountRemoval, *, delete_data: bool) -> None:
        """Remove it.

        Raises:
            KedgeError: AWS refused, or didn't finish in time.
        """
        remove_account(self._session, removal, self._clock, delete_data=delete_data)


def read_requirements(
    *,
    bucket: str | None,
    read_buckets: Sequence[str],
    run_role: bool,
    budget_usd: str | None,
    email: str | None,
) -> AccountSettings:
    """Parse the user's flags.

    Raises:
        BadRequestError: an amount that can't be read.
    """
    budget: Decimal | None = parse_usd(budget_usd) if budget_usd is not None else None
    # `--read-bucket ""` removes them all.
    named = tuple(name for name in read_buckets if name) if read_buckets else None
    return AccountSettings(bucket=bucket, read_buckets=named, run_role=run_role, budget_usd=budget, budget_email=email)
