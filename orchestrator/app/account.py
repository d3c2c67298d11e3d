"""Use cases for what kedge needs once in an account: show the changes, make them, take it all away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.providers.aws.account import Account, home_region
from orchestrator.adapters.providers.aws.account_plan import (
    AccountChange,
    apply_account,
    discard_account,
    plan_account,
)
from orchestrator.adapters.providers.aws.account_removal import AccountRemoval, plan_removal, remove_account
from orchestrator.adapters.providers.aws.account_settings import AccountWishes
from orchestrator.adapters.providers.aws.home import cache_name, forget_account
from orchestrator.adapters.providers.aws.record import Records
from orchestrator.adapters.providers.aws.session import AwsSession
from orchestrator.adapters.resources import resource
from orchestrator.adapters.settings import Settings
from orchestrator.core.errors import BadRequestError
from orchestrator.core.units import parse_usd


class AccountLevel:
    """The account level of a provider, with the credentials of the user's shell."""

    def __init__(self, provider: str, region: str | None, settings: Settings) -> None:
        """Choose an account; nothing is contacted.

        Args:
            provider: only `aws` has an account level.
            region: the region that the shell or the profile says, when left out.
            settings: the user's environment, and where what launches remember of the account is.

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
    def planned(self, wishes: AccountWishes) -> Iterator[AccountChange]:
        """Plan the changes; what isn't applied within the block leaves nothing behind.

        Raises:
            BadRequestError: the account level is in another region, or a wish can't be fulfilled.
            KedgeError: AWS refused.
        """
        template = resource("infra", "aws", "account.yaml").read_text(encoding="utf-8")
        change = plan_account(self._session, template, wishes, self._clock)
        try:
            yield change
        finally:
            discard_account(self._session, change)

    def apply(self, change: AccountChange) -> Account:
        """Carry planned changes out.

        Raises:
            KedgeError: AWS refused, or didn't end in time.
        """
        account = apply_account(self._session, change, self._clock)
        forget_account(self._cache_dir, self._clock)
        return account

    def plan_removal(self) -> AccountRemoval | None:
        """Look at what would go; None when there is nothing.

        Raises:
            BadRequestError: the account level is in another region.
            ConflictError: runs need it.
        """
        home = home_region(self._session)
        if home and home != self._session.region:
            raise BadRequestError(f"the account level is in {home}", fix=f"say --region {home}")
        return plan_removal(self._session, Records(self._folder).regions())

    def remove(self, removal: AccountRemoval, *, delete_data: bool) -> None:
        """Take it away.

        Raises:
            KedgeError: AWS refused, or didn't end in time.
        """
        remove_account(self._session, removal, self._clock, delete_data=delete_data)


def read_wishes(
    *,
    bucket: str | None,
    read_buckets: Sequence[str],
    run_role: bool,
    budget_usd: str | None,
    email: str | None,
) -> AccountWishes:
    """Read what the user's flags say.

    Raises:
        BadRequestError: an amount that can't be read.
    """
    budget: Decimal | None = parse_usd(budget_usd) if budget_usd is not None else None
    # `--read-bucket ""` takes them all away.
    named = tuple(name for name in read_buckets if name) if read_buckets else None
    return AccountWishes(bucket=bucket, read_buckets=named, run_role=run_role, budget_usd=budget, budget_email=email)
