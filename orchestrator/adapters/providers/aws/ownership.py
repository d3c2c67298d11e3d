"""Which account something of kedge's is in: looked for in another one, it seems to be gone and may go on billing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.record import MachineRecord
    from orchestrator.adapters.providers.aws.tools import Tools


def refuse_other_account(tools: Tools, run_id: str) -> None:
    """Refuse what concerns a run whose records are of another account than the credentials.

    Raises:
        BadRequestError: they are.
        KedgeError: AWS doesn't tell whose the credentials are.
    """
    _compare(tools, f"run {run_id}", tools.records.run(run_id).account)
    for record in tools.records.machines():
        if record.run_id == run_id:
            _compare(tools, f"machine {record.id}", record.account)


def refuse_other_account_of(tools: Tools, record: MachineRecord | None) -> None:
    """Refuse likewise what concerns one machine; without a record there is nothing to compare.

    Raises:
        BadRequestError: it is in another account.
        KedgeError: AWS doesn't tell whose the credentials are.
    """
    if record is not None:
        _compare(tools, f"machine {record.id}", record.account)


def _compare(tools: Tools, what: str, account: str) -> None:
    if account and account != tools.account_id():
        raise BadRequestError(
            f"{what} is in another AWS account",
            why=f"it is in account {account}, and these credentials are of {tools.account_id()}",
            fix=f"give the command again with the AWS_PROFILE, or the keys, of account {account}",
        )
