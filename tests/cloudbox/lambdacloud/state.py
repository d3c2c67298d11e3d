"""The resources of an account: plain data, which the modules that answer calls change."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.cloudbox.lambdacloud.catalogue import Image, InstanceType

Status = Literal["booting", "active", "unhealthy", "terminated", "terminating", "preempted"]


@dataclass(slots=True, kw_only=True)
class SshKey:
    """A public key of the account; launches accept it from `accepted_at` on, in the box's time."""

    id: str
    name: str
    public_key: str
    accepted_at: float = 0


@dataclass(slots=True, kw_only=True)
class Filesystem:
    """A filesystem, which bills by its bytes until it is deleted."""

    id: str
    name: str
    region: str
    created_at: float
    bytes_used: int = 0


@dataclass(slots=True, kw_only=True)
class Ruleset:
    """Firewall rules for the instances that were launched with them."""

    id: str
    name: str
    region: str
    created_at: float
    rules: list[dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class Instance:
    """An instance: it bills until `ended_at`, is `terminated` from `gone_at` on, and then is listed for a while."""

    id: str
    name: str
    region: str
    type: InstanceType
    image: Image
    address: str
    created_at: float
    address_at: float
    active_at: float
    key: SshKey
    private_address: str = ""
    hostname: str = ""
    user_data: str = ""
    tags: list[dict[str, str]] = field(default_factory=list)
    ruleset_ids: list[str] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    """Mount points by the filesystems' ids."""
    jupyter_token: str = field(default_factory=lambda: secrets.token_hex(16))
    powered: bool = True
    """Whether its machine should run: False after the machine has powered itself off."""
    boots: int = 1
    """How often the machine was started; one more restarts it."""
    becomes: Status | None = None
    """Its status from `becomes_at` on, if a fault sets one."""
    becomes_at: float = 0
    ended_at: float | None = None
    gone_at: float = 0
    is_foreign: bool = False
    """Belongs to somebody else in the same account: not on the meter."""

    def status(self, now: float, when_off: Status) -> Status:
        """Return the status that the API shows."""
        if self.ended_at is not None:
            return "terminated" if now >= self.gone_at else "terminating"
        if self.becomes and now >= self.becomes_at:
            return self.becomes
        if not self.powered:
            return when_off
        return "active" if now >= self.active_at else "booting"

    def bills(self) -> bool:
        """Tell whether it costs money: from the launch on, in any status, until its termination is accepted."""
        # fact: lambda-terminate-ends-billing
        return self.ended_at is None


def new_id() -> str:
    """Return an id in Lambda's format: 32 hexadecimal digits."""
    return uuid.uuid4().hex
