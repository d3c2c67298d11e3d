"""The box as tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydo

from tests.cloudbox.digitalocean.account.account import Settings
from tests.cloudbox.digitalocean.account.catalogue import DIGITALOCEAN, Catalogue
from tests.cloudbox.digitalocean.account.description import load_description
from tests.cloudbox.digitalocean.account.faults import FaultBook
from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.gate import Gate
from tests.cloudbox.digitalocean.life import metadata
from tests.cloudbox.rest.calls import CallBook
from tests.cloudbox.rest.https_server import HttpsServer
from tests.cloudbox.rest.meter import Meter


class DigitalOceanBox:
    """A box that runs, and its orders."""

    def __init__(self, cloud: Cloud, gate: Gate, server: HttpsServer) -> None:
        self.cloud = cloud
        self._gate = gate
        self._server = server
        self._clients: dict[str, Any] = {}

    @property
    def endpoint(self) -> str:
        """The API's URL."""
        return self._server.url

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that clients have to trust."""
        return self._server.ca_file

    @property
    def token(self) -> str:
        """The account's token that may do everything."""
        return self.cloud.tokens.main

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which kedge uses the box."""
        return {
            "DIGITALOCEAN_ACCESS_TOKEN": self.token,
            "KEDGE_DIGITALOCEAN_ENDPOINT": self.endpoint,
            "KEDGE_DIGITALOCEAN_CA": str(self.ca_file),
            # Droplets of the box can't have the usual address: they share this computer's.
            "KEDGE_DIGITALOCEAN_METADATA": metadata.URL,
        }

    @property
    def calls(self) -> CallBook:
        """The calls since the last reset, in order of arrival; `calls.find(method, path)`, `calls.reset()`."""
        return self.cloud.calls

    @property
    def faults(self) -> FaultBook:
        """Where faults are ordered."""
        return self.cloud.faults

    @property
    def meter(self) -> Meter:
        """What everything costs."""
        return self.cloud.meter

    @property
    def settings(self) -> Settings:
        """What may be set, until reset."""
        return self.cloud.account.settings

    @property
    def broken(self) -> list[str]:
        """Mistakes of the box: answers that DigitalOcean's description doesn't allow, and exceptions."""
        return list(self._gate.broken)

    def client(self, token: str | None = None) -> Any:
        """Return a pydo Client that calls once and trusts the box."""
        used = token or self.token
        if used not in self._clients:
            trust: dict[str, Any] = {"endpoint": self.endpoint, "connection_verify": str(self.ca_file)}
            self._clients[used] = pydo.Client(used, retry_total=0, **trust)
        return self._clients[used]

    def make_token(self, *scopes: str) -> str:
        """Return a token with custom scopes, such as `droplet:read`; those that they require must be among them."""
        return self.cloud.tokens.make(*scopes)

    def adopt_token(self, token: str, *scopes: str) -> None:
        """Let a text of the test's own be a token with these scopes; without any, it may do everything."""
        self.cloud.tokens.adopt(token, *scopes)

    def droplets(self) -> list[Droplet]:
        """Return the droplets that exist, whatever the API says, in order of creation."""
        with self.cloud.lock:
            self.cloud.settle()
            return self.cloud.account.present()

    def console(self, droplet: Droplet) -> str:
        """Return what the console of a droplet's machine showed."""
        return self.cloud.hosting.console(droplet) if self.cloud.hosting else ""

    def sell_out(self, size: str, *regions: str) -> None:
        """Let a size not be had in these regions (none named: in all), though it is listed there."""
        with self.cloud.lock:
            offered = self.cloud.account.sizes[size].regions
            self.cloud.account.sold_out |= {(size, region) for region in regions or offered}

    def break_gpu(self, fault: str = "matmul:0") -> None:
        """Let a GPU of the next machine that has any be faulty; machines/gpus.py says which faults there are."""
        with self.cloud.lock:
            assert self.cloud.hosting, "this box has no machines"
            self.cloud.hosting.images.break_gpu(fault)

    def change_first_boot(self, **switches: float | bool) -> None:
        """Set how unkind the first boot of machines is, until reset; `first_boot.FirstBoot` names the switches."""
        with self.cloud.lock:
            assert self.cloud.hosting, "this box has no machines"
            self.cloud.hosting.images.change_first_boot(switches)

    def sell(self, size: str, *regions: str) -> None:
        """Let a size be offered in these regions, and in no other."""
        self.change_size(size, regions=regions)

    def close_storage(self, *regions: str) -> None:
        """Let regions have no volumes."""
        with self.cloud.lock:
            known = self.cloud.account.regions
            for region in regions:
                features = tuple(each for each in known[region].features if each != "storage")
                known[region] = replace(known[region], features=features)

    def restock(self) -> None:
        """Let everything be had again where it is listed."""
        with self.cloud.lock:
            self.cloud.account.sold_out.clear()

    def set_price(self, size: str, usd_per_hour: Decimal | str) -> None:
        """Set what a size costs from now on."""
        self.change_size(size, usd_per_hour=Decimal(usd_per_hour))

    def change_size(self, size: str, **fields: Any) -> None:
        """Change a size of the catalogue, as `regions=()` or `available=False`; `catalogue.Size` names the fields."""
        with self.cloud.lock:
            sizes = self.cloud.account.sizes
            sizes[size] = replace(sizes[size], **fields)

    def advance(self, seconds: float) -> None:
        """Let time pass for the box: its meter, its rate limits, whatever takes time there."""
        with self.cloud.lock:
            self.cloud.clock.advance(seconds)
            self.cloud.settle()

    def reset(self) -> None:
        """Start from nothing."""
        self.cloud.reset()
        self._gate.broken.clear()

    def close(self) -> None:
        """Close the clients that were made here."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


@contextmanager
def start_box(
    folder: Path, *, machines: bool = False, checked: bool = True, catalogue: Catalogue = DIGITALOCEAN
) -> Iterator[DigitalOceanBox]:
    """Run a box; what it writes lies in `folder`.

    Args:
        folder: Exists.
        catalogue: What it sells: DigitalOcean's, or the AMD Developer Cloud's.
        machines: Whether droplets boot; needs what `nspawn_needs.prepare_machines` asks for.
        checked: Whether calls are checked against DigitalOcean's description, where that is present.
    """
    cloud = Cloud(folder if machines else None, catalogue)
    gate = Gate(cloud, load_description() if checked else None)
    server = HttpsServer(gate, folder, "digitalocean")
    if cloud.hosting:
        cloud.hosting.endpoint = server.url
    box = DigitalOceanBox(cloud, gate, server)
    try:
        yield box
    finally:
        box.close()
        server.close()
        cloud.close()
