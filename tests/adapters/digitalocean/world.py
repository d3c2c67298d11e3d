"""A test's laptop and its DigitalOcean account in the box."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.adapters.jobfile.values.requirements import parse_accelerators
from orchestrator.adapters.providers import Backing, Context, open_backing
from orchestrator.core.job import AtEnd, Resources, VolumeSpec
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.ports import Provider
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.box_time import BoxTime
from tests.support.orders import changed, make_offer

RUN = "digits-1121-ab2c"
M1 = f"{RUN}-m1"
HOME = "203.0.113.7/32"
GPU = "gpu-mi300x1-192gb"
PLAIN = "s-2vcpu-4gb"
REGION = "tor1"
AMD_GPU, AMD_REGION = "gpu-mi300x1-192gb-devcloud", "atl1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKoMcRrkmFHYXVVT3sHqPiDRyyGHfRVGRFYT4LnNHB kedge"


@dataclass
class DoWorld:
    """One account and the state folder of one laptop.

    Attributes:
        name: the provider's name, `do` or `amd`.
        machines: whether droplets really boot, so that waits must take real time.
    """

    api: DigitalOceanBox
    folder: Path
    name: str = "do"
    clock: Any = None
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = self.clock or BoxTime(self.api)

    def backing(self) -> Backing:
        """Open the provider and its store, as the next command does."""
        return open_backing(
            self.name,
            Context(
                state_dir=self.folder,
                runtime_dir=self.folder,
                clock=self.clock,
                key_file=self.folder / "key",
                environ={**self._access(), **self.environ},
            ),
        )

    def provider(self) -> Provider:
        """Open the provider alone."""
        return self.backing().provider

    def other_laptop(self) -> DoWorld:
        """Return another laptop with the same account."""
        return replace(self, folder=self.folder / "other")

    def order(self, number: int = 1, **changes: Any) -> MachineOrder:
        """Order a machine of the run."""
        size, region = (AMD_GPU, AMD_REGION) if self.name == "amd" else (GPU, REGION)
        order = MachineOrder(
            id=f"{RUN}-m{number}",
            run_id=RUN,
            offer=make_offer(self.name, size, region, usd_per_hour=Decimal("1.99")),
            lifetime_seconds=3600,
            authorized_key=KEY,
            agent_archive=agent_archive(),
            store_url="",
            ssh_from=HOME,
        )
        return changed(order, **changes)

    def enter_key(self) -> None:
        """Register the laptop's key, and wait until creations accept it."""
        client = self.api.client()
        if not client.ssh_keys.list()["ssh_keys"]:
            client.ssh_keys.create({"name": "kedge-laptop", "public_key": KEY})
        self.api.advance(self.api.settings.key_seconds)

    def leftovers(self) -> list[str]:
        """List everything in the account that somebody created."""
        account = self.api.cloud.account
        return sorted(
            [
                *(f"droplet {droplet.id}" for droplet in self.api.droplets()),
                *(f"volume {volume.name}" for volume in account.volumes.values()),
                *(f"firewall {firewall.name}" for firewall in account.firewalls.values()),
                *(f"key {key.name}" for key in account.keys.values()),
                *(f"tag {tag}" for tag in account.tags),
                *(f"address {address}" for address in account.reserved_ips),
                *(f"project {each.name}" for each in account.projects.values() if not each.is_default),
            ]
        )

    def posts(self) -> int:
        """Count the requests for a droplet."""
        return len(self.api.calls.find("POST", "/v2/droplets"))

    def looks_at_actions(self) -> int:
        """Count the queries for the state of an action."""
        return sum(call.path.startswith("/v2/actions/") for call in self.api.calls.find("GET"))

    def _access(self) -> dict[str, str]:
        """Return the variables that point kedge to the box. The AMD Developer Cloud is the same API elsewhere."""
        environ = self.api.environ
        if self.name == "do":
            return environ
        return {
            "AMD_DEVCLOUD_TOKEN": environ["DIGITALOCEAN_ACCESS_TOKEN"],
            "KEDGE_AMD_ENDPOINT": environ["KEDGE_DIGITALOCEAN_ENDPOINT"],
            "KEDGE_DIGITALOCEAN_CA": environ["KEDGE_DIGITALOCEAN_CA"],
        }


def restock_mi300x(api: DigitalOceanBox) -> None:
    """Make DigitalOcean sell MI300X, as it does in some months."""
    api.sell(GPU, "nyc2", "tor1")
    api.sell("gpu-mi300x8-1536gb", "nyc2")


def volume(name: str = "scans", at_end: AtEnd = AtEnd.KEEP) -> VolumeSpec:
    """Specify a small data volume."""
    return VolumeSpec(name=name, target=f"data/{name}", size_gib=1, at_end=at_end)


def offers(do: DoWorld, gpu: str = "", **requirements: Any) -> list[Offer]:
    accelerators = parse_accelerators(gpu) if gpu else None
    return list(do.provider().offers(Resources(accelerators=accelerators, **requirements)))


def offline(do: DoWorld, name: str = "do", **environ: str) -> DoWorld:
    return replace(do, name=name, environ={"DIGITALOCEAN_ACCESS_TOKEN": "", "AMD_DEVCLOUD_TOKEN": "", **environ})
