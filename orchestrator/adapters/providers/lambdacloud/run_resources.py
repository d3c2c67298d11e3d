"""A run's resources at Lambda besides machines: the laptop's SSH key, and the network that may reach port 22.

Lambda lets everybody reach port 22 of every instance, and its firewall rules apply to the whole account
(fact: lambda-default-firewall, fact: lambda-global-rules-are-everybodys): so the machine closes the port itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from orchestrator.adapters.cloud.api import RunResources
from orchestrator.adapters.cloud.context import RunResourcesRecord
from orchestrator.adapters.cloud.model import Chosen, Ready
from orchestrator.adapters.cloud.records import RecordFolder
from orchestrator.adapters.host.own_address import ask_own_network
from orchestrator.adapters.providers.lambdacloud.api import Api
from orchestrator.adapters.rest.failures import ApiError
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import MachineOrder
from orchestrator.core.values.network import parse_address_range


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaRun(RunResourcesRecord):
    """This computer's record of a run.

    Attributes:
        account: the id of the laptop's SSH key in the account: Lambda has no other id of an account.
        api_key: a digest of the API key that made its newest machine.
        key: the name of that SSH key; empty before the account has it.
        ssh_from: the network that its newest machine admits.
    """

    id: str
    account: str = ""
    api_key: str = ""
    key: str = ""
    ssh_from: str = ""


class LambdaResources(RunResources[str, str]):
    """The SSH key of all runs, which stays in the account, and the record of each run."""

    def __init__(self, api: Api, records: RecordFolder[LambdaRun]) -> None:
        self._api = api
        self.records = records

    def ensure(self, order: MachineOrder, chosen: Chosen[str]) -> Ready[str]:  # noqa: ARG002 - the same for all types
        """Add the laptop's key to the account, unless it is there, and return the network that a machine admits."""
        ssh_from = parse_address_range(order.ssh_from) or ask_own_network()
        record = replace(self.records.run(order.run_id), ssh_from=ssh_from, api_key=self._api.key_digest)
        is_new, key = False, order.authorized_key
        if not record.key:
            account = self._find(key)
            is_new = not account
            record = replace(record, key=_name(key), account=account or self._enter(key))
        self.records.keep_run(record)
        return Ready(native=record.key, is_new=is_new, ssh_from=ssh_from)

    def renew(self, order: MachineOrder) -> None:
        """Add the key again: somebody has removed it."""
        self.records.keep_run(replace(self.records.run(order.run_id), key=""))

    def reopen(self, run_id: str, region: str, ssh_from: str) -> bool:  # noqa: ARG002 - a run's in all regions
        """Refuse: only the machine itself could admit others, and it only admits the recorded network.

        Raises:
            BadRequestError: its machines admit another network.
        """
        open_to = self.records.run(run_id).ssh_from
        ssh_from = parse_address_range(ssh_from) or ask_own_network()
        if open_to in ("", ssh_from):
            return False
        raise BadRequestError(
            f"machines of run {run_id} at lambda can't be opened to {ssh_from}",
            why=f"their own firewall admits {open_to}, and can't be changed after the launch",
            fix=f"run the command from there, or make a new machine, which lets you in: `kedge teardown {run_id}`, "
            f"then `kedge resume {run_id}`; a wider --ssh-from at the launch also admits your later addresses",
        )

    def _enter(self, public_key: str) -> str:
        """Add a key, and return its id."""
        try:
            return self._api.add_key(_name(public_key), public_key).id
        except ApiError:
            # Another command was first, or the answer was lost.
            found = self._find(public_key)
            if not found:
                raise
            return found

    def _find(self, public_key: str) -> str:
        """Find a key by its name (which a launch uses) and its public half; empty if there is none."""
        name, half = _name(public_key), public_key.split()[:2]
        found = [each.id for each in self._api.ssh_keys() if each.name == name and each.public_key.split()[:2] == half]
        return min(found, default="")


def _name(public_key: str) -> str:
    return f"kedge-{hashlib.sha256(' '.join(public_key.split()[:2]).encode()).hexdigest()[:16]}"
