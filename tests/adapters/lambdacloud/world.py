"""A laptop with a Lambda account in the box, and its orders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Accelerators
from orchestrator.core.ports import Provider
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.support.box_time import BoxTime
from tests.support.orders import changed, make_offer

RUN = "digits-1121-ab2c"
M1 = f"{RUN}-m1"
HOME = "203.0.113.7/32"
GPU, REGION = "gpu_1x_h100_sxm5", "us-east-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKoMcRrkmFHYXVVT3sHqPiDRyyGHfRVGRFYT4LnNHB kedge"
LAUNCH = ("POST", "/api/v1/instance-operations/launch")
TERMINATE = ("POST", "/api/v1/instance-operations/terminate")


@dataclass
class LambdaWorld:
    """One account, and the state folder of one laptop."""

    lam: LambdaBox
    folder: Path
    clock: Any = None
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = self.clock or BoxTime(self.lam)

    def provider(self) -> Provider:
        """Open the provider, as the next command does."""
        context = Context(
            state_dir=self.folder,
            runtime_dir=self.folder,
            clock=self.clock,
            key_file=self.folder / "key",
            environ={**self.lam.environ, **self.environ},
        )
        return open_backing("lambda", context).provider

    def other_laptop(self) -> LambdaWorld:
        """Return another laptop with the same account."""
        return replace(self, folder=self.folder / "other")

    @contextmanager
    def other_account(self) -> Iterator[None]:
        """Give this laptop the API key of another, empty account."""
        account, key = self.lam.cloud.account, "secret_other_0123"
        hidden, keys = dict(account.instances), dict(account.keys)
        account.api_keys.add(key)
        self.environ["LAMBDA_API_KEY"] = key
        account.instances.clear()
        account.keys.clear()
        yield
        del self.environ["LAMBDA_API_KEY"]
        account.instances.update(hidden)
        account.keys.update(keys)

    def order(self, number: int = 1, **changes: Any) -> MachineOrder:
        """Order a machine of the run."""
        price, gpu = Decimal("4.29"), Accelerators(name="h100")
        order = MachineOrder(
            id=f"{RUN}-m{number}",
            run_id=RUN,
            offer=make_offer("lambda", GPU, REGION, usd_per_hour=price, accelerators=gpu),
            lifetime_seconds=3600,
            authorized_key=KEY,
            agent_archive=agent_archive(),
            store_url="",
            ssh_from=HOME,
        )
        return changed(order, **changes)

    def launches(self) -> int:
        """Count the launch requests that were sent."""
        return len(self.lam.calls.find(*LAUNCH))
