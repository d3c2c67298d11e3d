"""One account: its settings, its resources, and which of them bill."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from tests.cloudbox.lambdacloud.catalogue import REGIONS, TYPES, InstanceType, images
from tests.cloudbox.lambdacloud.errors import missing
from tests.cloudbox.lambdacloud.state import Filesystem, Instance, Ruleset, SshKey
from tests.cloudbox.rest.clock import BoxClock
from tests.cloudbox.rest.meter import Bill

_USD_PER_GIB_MONTH = Decimal("0.20")
_HOURS_PER_MONTH = 730
OPEN = {
    "protocol": "tcp",
    "port_range": [22, 22],
    "source_network": "0.0.0.0/0",
    "description": "Allow SSH from anywhere",
}
"""fact: lambda-default-firewall"""
_PING = {"protocol": "icmp", "source_network": "0.0.0.0/0", "description": "Allow ICMP from anywhere"}


@dataclass(slots=True, kw_only=True)
class Settings:
    """What tests may change until `reset`; the defaults are at least as slow as Lambda was observed to be."""

    seconds_between_requests: float = 1
    seconds_between_launches: float = 12
    rate_refusal: Literal["cloudflare-429", "cloudflare-403", "json"] = "cloudflare-429"
    retry_after: Literal["", "seconds", "date"] = ""
    refuses_account: Literal["", "global/account-inactive", "global/invalid-address"] = ""
    instance_limit: int = 16
    key_seconds: float = 5
    """From the creation of an SSH key, which is listed at once, until launches accept it. Lambda documents no delay."""
    not_found_seconds: float = 5
    """How long requests for a new instance, also its termination, get a 404."""
    unlisted_seconds: float = 5
    """How long a new instance is missing in listings."""
    endable_seconds: float = 8
    """How long a new instance can't be terminated."""
    too_early: Literal[400, 409] = 400
    """The status of that refusal; no recording of one is known."""
    address_seconds: float = 30
    """From a launch until the instance shows its address, while it is still booting."""
    activation_seconds: float = 150
    """From a launch until its status is active, whether its sshd answers or not."""
    ending_seconds: float = 90
    """How long an instance is terminating: it no longer bills, but still uses its key, filesystems and rulesets."""
    shown_seconds: float = 60
    """How long it is listed as terminated after that; 0: not at all."""
    second_termination: Literal[200, 400, 500] = 400
    """The status for the termination of a terminating instance; an error has the code `global/unknown`."""
    off_status: Literal["active", "unhealthy"] = "active"
    """The status of an instance that has powered itself off. Unknown; `active` hides that the machine is off."""
    early_ssh_seconds: float = 1
    """How long the image's own sshd, with its own host key, runs before cloud-init begins."""
    left_out: tuple[str, ...] = ()
    """Optional fields that answers leave out: ip, private_ip, name, tags, hostname, file_system_mounts."""
    folds_case: bool = False
    """Whether names and values of tags come back in lower case."""
    page_size: int = 0
    """The page size of the listing of instances, with an undocumented `page_token`; 0: one page."""
    may_change_global_rules: bool = False
    """Whether a client may change the firewall rules of all instances of the account."""

    def remove_delays(self) -> None:
        """Remove all delays, except those that a program has to wait for anyway."""
        self.seconds_between_requests = self.seconds_between_launches = 0
        self.not_found_seconds = self.unlisted_seconds = self.endable_seconds = 0
        self.key_seconds = self.address_seconds = self.activation_seconds = 0
        self.ending_seconds = self.shown_seconds = 0


class Account:
    """The resources of one account; callers hold the box's lock."""

    def __init__(self, clock: BoxClock) -> None:
        self.clock = clock
        # In the format of Lambda's own keys, which programs that mask secrets may recognize. fact: lambda-key-shape
        self.main_key = f"secret_kedge_{secrets.token_hex(16)}.{secrets.token_urlsafe(24)}"
        self.start_anew()

    def start_anew(self) -> None:
        """Reset everything."""
        self.settings = Settings()
        self.api_keys: set[str] = {self.main_key}
        self.types: dict[str, InstanceType] = {one.name: one for one in TYPES}
        self.sold_out: set[tuple[str, str]] = set()
        self.images = images()
        self.instances: dict[str, Instance] = {}
        self.keys: dict[str, SshKey] = {}
        self.filesystems: dict[str, Filesystem] = {}
        self.rulesets: dict[str, Ruleset] = {}
        self.global_rules: list[dict[str, Any]] = [dict(_PING), dict(OPEN)]
        self.issued: set[str] = set()

    def status(self, instance: Instance) -> str:
        """Return an instance's status now."""
        return instance.status(self.clock.now(), self.settings.off_status)

    def listed(self) -> list[Instance]:
        """Return the instances that the listing shows, in an order without a meaning."""
        now, lag = self.clock.now(), self.settings.unlisted_seconds
        shown = [one for one in self.instances.values() if one.is_foreign or now >= one.created_at + lag]
        return sorted(shown, key=lambda one: one.id)

    def instance(self, wanted: str) -> Instance:
        """Return an instance that the API knows at this time.

        Raises:
            LambdaError: the API doesn't know it, even if it exists.
        """
        found = self.instances.get(wanted)
        if found is None or self.clock.now() < found.created_at + self.settings.not_found_seconds:
            raise missing("instance")
        return found

    def users(self, kind: Literal["key", "filesystem", "ruleset"], wanted: str) -> list[Instance]:
        """Return the instances that use a resource, terminating ones too. fact: lambda-in-use-while-terminating."""
        now = self.clock.now()
        return [
            one
            for one in self.instances.values()
            if (one.ended_at is None or now < one.gone_at)
            and wanted in {"key": [one.key.id], "filesystem": one.mounts, "ruleset": one.ruleset_ids}[kind]
        ]

    def settle(self) -> None:
        """Apply ordered state changes that are due, and remove instances that are no longer listed."""
        now = self.clock.now()
        for one in list(self.instances.values()):
            if one.becomes == "terminated" and now >= one.becomes_at and one.ended_at is None:
                one.ended_at = one.gone_at = one.becomes_at
            if one.ended_at is not None and now >= one.gone_at + self.settings.shown_seconds:
                del self.instances[one.id]

    def billing(self, now: float) -> Iterator[Bill]:
        """Return the open bills: instances by the started minute, filesystems by their bytes.

        fact: lambda-billed-by-the-minute; fact: lambda-filesystems-bill
        """
        for one in self.instances.values():
            if one.bills() and not one.is_foreign:
                yield Bill(
                    id=one.id,
                    kind="instance",
                    region=one.region,
                    what=one.type.name,
                    usd_per_hour=Decimal(one.type.cents_per_hour) / 100,
                    since=one.created_at,
                    step_seconds=60,
                )
        for each in self.filesystems.values():
            rate = Decimal(each.bytes_used) / 2**30 * _USD_PER_GIB_MONTH / _HOURS_PER_MONTH
            what = f"{each.bytes_used} bytes"
            yield Bill(id=each.id, kind="filesystem", region=each.region, what=what, usd_per_hour=rate, since=now)


def show_region(name: str) -> dict[str, str]:
    """Return a region as the API shows it."""
    return {"name": name, "description": REGIONS[name]}
