"""The interface of the Lambda box for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cloudbox.lambdacloud.account import Settings
from tests.cloudbox.lambdacloud.cloud import Cloud
from tests.cloudbox.lambdacloud.faults import LambdaFaults
from tests.cloudbox.lambdacloud.gate import Gate, load_description
from tests.cloudbox.lambdacloud.state import Instance, SshKey, Status, new_id
from tests.cloudbox.rest.calls import CallBook
from tests.cloudbox.rest.client import Client
from tests.cloudbox.rest.https_server import HttpsServer
from tests.cloudbox.rest.meter import Meter


class LambdaBox:
    """A running box."""

    def __init__(self, cloud: Cloud, gate: Gate, server: HttpsServer) -> None:
        self.cloud = cloud
        self._gate = gate
        self.endpoint = server.url
        self.ca_file: Path = server.ca_file
        self._clients: dict[str, Client] = {}

    @property
    def api_key(self) -> str:
        """The account's API key. Like every key it may do everything. fact: lambda-one-key-rules-all."""
        return self.cloud.account.main_key

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which kedge uses the box."""
        return {
            "LAMBDA_API_KEY": self.api_key,
            "KEDGE_LAMBDA_ENDPOINT": self.endpoint,
            "KEDGE_LAMBDA_CA": str(self.ca_file),
            # A little more than the box requires, as kedge's own default is more than Lambda requires.
            "KEDGE_LAMBDA_PACE": str(self.settings.seconds_between_requests * 1.05),
        }

    @property
    def calls(self) -> CallBook:
        """The calls since the last reset, in order of arrival; `calls.find(method, path)`, `calls.reset()`."""
        return self.cloud.calls

    @property
    def faults(self) -> LambdaFaults:
        """The book for ordering faults."""
        return self.cloud.faults

    @property
    def meter(self) -> Meter:
        """The costs of everything in the account."""
        return self.cloud.meter

    @property
    def settings(self) -> Settings:
        """The settings that tests may change, until `reset`."""
        return self.cloud.account.settings

    @property
    def broken(self) -> list[str]:
        """Mistakes of the box, and of clients that change resources shared by the whole account."""
        return [*self._gate.broken, *self.cloud.misuse]

    def client(self, api_key: str | None = None) -> Client:
        """Return a client that doesn't retry and trusts the box."""
        used = api_key or self.api_key
        if used not in self._clients:
            headers = {"Authorization": f"Bearer {used}", "User-Agent": "kedge-tests/1"}
            self._clients[used] = Client(self.endpoint, self.ca_file, headers)
        return self._clients[used]

    def secrets(self) -> set[str]:
        """Return every secret that the box has sent or accepts: none may appear in a log or in saved state."""
        return {*self.cloud.account.api_keys, *self.cloud.account.issued}

    def revoke(self) -> None:
        """Revoke all API keys."""
        self.cloud.account.api_keys.clear()

    def instances(self) -> list[Instance]:
        """Return the test's own instances that bill, in order of creation, even if the API doesn't show them."""
        return [one for one in self._settled() if one.bills() and not one.is_foreign]

    def foreign(self) -> list[Instance]:
        """Return other people's instances that still exist."""
        return [one for one in self._settled() if one.is_foreign and one.ended_at is None]

    def console(self, instance: Instance) -> str:
        """Return the console output of an instance's machine."""
        return self.cloud.hosting.console(instance) if self.cloud.hosting else ""

    def crowd(self, count: int, **fields: Any) -> None:
        """Add other people's instances to the account; their names begin like kedge's."""
        account = self.cloud.account
        kind, image = account.types["gpu_1x_a10"], account.images[0]
        now = account.clock.now()
        for number in range(count):
            key = SshKey(id=new_id(), name=f"kedge-{number}", public_key="ssh-ed25519 AAAA other")
            usual: dict[str, Any] = {"name": f"kedge-{number}", "region": "us-east-1", "type": kind, "image": image}
            times: dict[str, Any] = {"created_at": now, "address_at": now, "active_at": now}
            made = Instance(
                id=new_id(),
                address=f"203.0.113.{number % 254 + 1}",
                key=key,
                is_foreign=True,
                **times,
                **usual | fields,
            )
            with self.cloud.lock:
                account.instances[made.id] = made
                account.keys[key.id] = key
                account.issued.add(made.jupyter_token)

    def strike(self, instance: Instance, becomes: Status) -> None:
        """Put an instance into a status that nobody requested: unhealthy, preempted, or terminated."""
        with self.cloud.lock:
            instance.becomes, instance.becomes_at = becomes, self.cloud.clock.now()
            self.cloud.settle()

    def sell_out(self, kind: str, *regions: str) -> None:
        """Refuse launches of a type in these regions (none given: in all), although it is listed there."""
        with self.cloud.lock:
            offered = self.cloud.account.types[kind].regions
            self.cloud.account.sold_out |= {(kind, region) for region in regions or offered}

    def restock(self) -> None:
        """Let launches succeed again wherever a type is listed."""
        with self.cloud.lock:
            self.cloud.account.sold_out.clear()

    def change_type(self, kind: str, **fields: Any) -> None:
        """Change fields of a type in the catalogue, such as `regions=()` or `cents_per_hour=1`."""
        with self.cloud.lock:
            types = self.cloud.account.types
            types[kind] = replace(types[kind], **fields)

    def break_gpu(self, fault: str = "matmul:0") -> None:
        """Give the next machine with GPUs a faulty GPU; `machines/gpus.py` lists the faults."""
        assert self.cloud.hosting, "this box has no machines"
        self.cloud.hosting.images.break_gpu(fault)

    def change_first_boot(self, **switches: float | bool) -> None:
        """Set how difficult the first boot of machines is, until `reset`; `FirstBoot` names the switches."""
        assert self.cloud.hosting, "this box has no machines"
        self.cloud.hosting.images.change_first_boot(switches)

    def advance(self, seconds: float) -> None:
        """Advance the box's time, with its meter, its rate limits and everything that is pending."""
        with self.cloud.lock:
            self.cloud.clock.advance(seconds)
            self.cloud.settle()

    def reset(self) -> None:
        """Return to an empty account."""
        self.cloud.reset()
        self._gate.broken.clear()

    def close(self) -> None:
        """Close the clients that `client` has made."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _settled(self) -> list[Instance]:
        with self.cloud.lock:
            self.cloud.settle()
            return list(self.cloud.account.instances.values())


@contextmanager
def start_box(folder: Path, *, machines: bool = False) -> Iterator[LambdaBox]:
    """Run a box; it writes its files into `folder`, which must exist.

    With `machines`, instances boot: that needs what `nspawn/needs.py` installs.
    """
    cloud = Cloud(folder if machines else None)
    gate = Gate(cloud, load_description())
    server = HttpsServer(gate, folder, "lambda")
    box = LambdaBox(cloud, gate, server)
    try:
        yield box
    finally:
        box.close()
        server.close()
        cloud.close()
