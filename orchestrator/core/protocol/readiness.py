"""Parses a new machine's report of its boot, and the host key that it has created.

The agent writes the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.core.protocol.decoding import Instant, Name, Text, decode, nonsense

BURN_IN = "burn-in"
"""The phase of a boot in which every GPU is tested."""

_HOST_KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{1,4096}={0,2}(?: [ -~]{0,255})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootPhase:
    """One step of a boot, a line of `<root>/boot.jsonl`. Times are Unix seconds on the machine's clock.

    Attributes:
        phase: `agent`, `code` or `start`, in this order.
        error: what went wrong, in one line; empty if nothing did.
    """

    phase: Name
    began: Instant
    ended: Instant
    ok: bool
    error: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`<root>/ready`: the boot has ended, successfully or not. The phases after a failed one are missing."""

    ok: bool
    phases: tuple[BootPhase, ...] = ()


def parse_ready(raw: bytes) -> Readiness:
    """Parse `<root>/ready`.

    Raises:
        NonsenseError: it is invalid.
    """
    return decode(raw, Readiness, what="its readiness sentinel")


def parse_host_key(raw: bytes) -> str:
    """Parse the public host key that a machine has created: exactly one key, because it is written into a file of keys.

    Raises:
        NonsenseError: it is invalid.
    """
    found = _HOST_KEY.fullmatch(raw.decode("ascii", "replace").strip())
    if found is None:
        raise nonsense("its host key", f"it begins {raw[:80]!r}")
    return found[0]
