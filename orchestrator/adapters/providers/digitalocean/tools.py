"""What the provider's parts work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.adapters.providers.digitalocean.ending import SelfDelete
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord, Records
    from orchestrator.adapters.providers.digitalocean.site import Site
    from orchestrator.core.ports import Clock


class Account:
    """Whose token it is."""

    def __init__(self, api: Api) -> None:
        self._api = api

    @cached_property
    def id(self) -> str:
        """The team's id, else the account's; asked once.

        Raises:
            KedgeError: the API doesn't accept the token.
        """
        body = self._api.read("the account can't be used", self._api.client.account.get) or {}
        account = body.get("account") or {}
        return str((account.get("team") or {}).get("uuid") or account.get("uuid") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything that touches the world.

    Attributes:
        ending: what a droplet deletes itself with.
        claims: a folder of locks.
    """

    site: Site
    api: Api
    account: Account
    records: Records
    clock: Clock
    key_file: Path
    ending: SelfDelete
    claims: Path

    def refuse_other_account(self, run_id: str) -> None:
        """Refuse what concerns a run whose records are of another account: looked for here, it seems to be gone.

        Raises:
            BadRequestError: they are.
            KedgeError: the API doesn't tell whose the token is.
        """
        self._compare(f"run {run_id}", self.records.run(run_id).account)
        for record in self.records.machines():
            if record.run_id == run_id:
                self.refuse_other_account_of(record)

    def refuse_other_account_of(self, record: MachineRecord | None) -> None:
        """Refuse likewise what concerns one machine; without a record there is nothing to compare."""
        if record is not None:
            self._compare(f"machine {record.id}", record.account)

    def _compare(self, what: str, account: str) -> None:
        if account and account != self.account.id:
            raise BadRequestError(
                f"{what} is in another account",
                why=f"it is in {account}, and this token is of {self.account.id}",
                fix=f"give the command again with {self.site.token_names[0]} set to a token of that account",
            )
