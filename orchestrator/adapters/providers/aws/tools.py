"""What the provider's parts work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account import Account
    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.adapters.providers.aws.record import Records
    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.ports import Clock


class AgentStage(Protocol):
    """Where a new machine fetches its agent."""

    def put_agent(self, run_id: str, archive: bytes) -> str:
        """Bring the agent's archive there, unless it is there already, and return its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything that touches the world.

    Attributes:
        account: asks for what a bootstrap has made; once a day.
        fresh_account: asks for it now.
        stage: opens the bucket.
        regions: where to look for machines besides those that there are records of.
        swept: where a sweep of this command has found something of each run.
    """

    session: AwsSession
    records: Records
    cache: Cache
    cache_dir: Path
    clock: Clock
    key_file: Path
    account: Callable[[], Account]
    fresh_account: Callable[[], Account]
    stage: Callable[[], AgentStage]
    regions: tuple[str, ...] = ()
    swept: dict[str, set[str]] = field(default_factory=dict)

    def account_id(self) -> str:
        """Return the account of the credentials; asked once a day.

        Raises:
            KedgeError: AWS doesn't tell.
        """
        named = self.session.credentials_name()
        return str(self.cache.remember("accounts", named, self.session.account_id))

    def known_regions(self) -> set[str]:
        """List the regions in which this laptop, or its user, says that there may be something; all, where none does.

        Raises:
            KedgeError: AWS doesn't tell which there are.
        """
        named = {self.session.said, *self.regions, *self.records.regions()}.union(*self.swept.values()) - {""}
        return named or set(self.session.regions())
