"""What AWS's modules share: session, records, cache, account level and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.adapters.providers.aws.record import Records
    from orchestrator.core.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsContext:
    """One account, and what this computer knows about it.

    Attributes:
        account: returns the account level, requested once a day.
        fresh_account: requests it now.
        regions: where to look for machines, besides the regions in records.
    """

    session: AwsSession
    records: Records
    cache: Cache
    cache_dir: Path
    clock: Clock
    account: Callable[[], Account]
    fresh_account: Callable[[], Account]
    regions: tuple[str, ...] = ()

    def account_id(self) -> str:
        """Return the account of the credentials; requested once a day.

        Raises:
            KedgeError: AWS refuses, or doesn't answer.
        """
        named = self.session.credentials_name()
        return str(self.cache.remember("accounts", named, self.session.account_id))
