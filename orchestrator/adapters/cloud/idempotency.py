"""Idempotency strategies: how one order becomes exactly one instance, whatever breaks between request and answer."""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from orchestrator.core.machine import MachineOrder


def token_of(*parts: str) -> str:
    """Return an idempotency token of 64 ASCII characters that stands for exactly these parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Idempotency(ABC):
    """How a cloud treats a request that is sent twice, and what the life cycle must do about it."""

    looks_first: ClassVar[bool]
    """Look for an instance that another computer made, even if this one has no record."""
    is_exclusive: ClassVar[bool]
    """Only one process of this computer may create a machine at a time."""
    repeats_unclear: ClassVar[bool]
    """A request whose outcome is unclear is sent again."""
    settles_duplicates: ClassVar[bool]
    """Two instances of one machine are possible: the oldest stays, the others are deleted."""

    @abstractmethod
    def attempt(self, asked_at: datetime) -> str:
        """Return a word that distinguishes this request from others for the same machine."""

    @abstractmethod
    def token(self, order: MachineOrder, ended: Sequence[str], parts: Sequence[str]) -> str:
        """Return the idempotency token; empty if the cloud takes none.

        Args:
            order: what is asked for.
            ended: ids of the machine's instances that have ended: the request after them needs another token.
            parts: the run's resources that the request names; see `Ready.token_parts`.
        """


class ClientToken(Idempotency):
    """The cloud returns the same instance for the same token."""

    looks_first = False
    is_exclusive = False
    repeats_unclear = True
    settles_duplicates = False

    def attempt(self, asked_at: datetime) -> str:
        """Return the instant of the request."""
        return asked_at.isoformat()

    def token(self, order: MachineOrder, ended: Sequence[str], parts: Sequence[str]) -> str:
        """Return 64 ASCII characters; the cloud refuses a token that it has seen with other parameters."""
        market = "spot" if order.spot else "on-demand"
        named = (order.id, order.region, order.zone, order.instance_type, market, *ended, *parts)
        return token_of(*named)


class MarkAndLookUp(Idempotency):
    """The cloud knows no idempotency: a request is sent once, and what it made is found by its mark."""

    looks_first = True
    is_exclusive = True
    repeats_unclear = False
    settles_duplicates = True

    def attempt(self, asked_at: datetime) -> str:  # noqa: ARG002 - the other strategy's need
        """Return a random word."""
        return secrets.token_hex(6)

    def token(self, order: MachineOrder, ended: Sequence[str], parts: Sequence[str]) -> str:  # noqa: ARG002
        """Return nothing."""
        return ""
