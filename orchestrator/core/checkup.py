"""A checkup: what was looked at, what was found, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.errors import KedgeError

OFFERS, QUOTA = "offers", "quota"
"""The lines on what is for sale and allowed: a launch that comes upon them has an exit code of its own for it."""

_UNEXPLAINED = "try again in a minute; report it if it stays so"
"""The fix where a provider refuses in words that kedge has no answer to."""


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Something works less well, or can't be told."""
    FAILED = "failed"
    """A launch would fail, or wouldn't be guarded."""
    UNUSED = "unused"
    """Nobody has set it up here: nothing is wrong, and `fix` says how to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of a checkup.

    Attributes:
        found: what there is.
        fix: what to do about it; empty where nothing is wrong, and only there.
    """

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One thing to look at; looking changes nothing.

    Attributes:
        look: returns the verdict, what was found, and the fix; a KedgeError that it raises is a failed check.
        vital: where it fails, the probes after it would only fail for the same reason, and aren't made.
    """

    name: str
    look: Callable[[], tuple[Verdict, str, str]]
    vital: bool = False


def run_probes(probes: Sequence[Probe]) -> tuple[Check, ...]:
    """Look at everything, in this order."""
    checks: list[Check] = []
    broken = ""
    for probe in probes:
        if broken:
            checks.append(_unseen(probe, broken))
            continue
        check = run_probe(probe)
        checks.append(check)
        if probe.vital and check.verdict is Verdict.FAILED:
            broken = probe.name
    return tuple(checks)


def run_probe(probe: Probe) -> Check:
    """Look at one thing."""
    try:
        verdict, found, fix = probe.look()
    except KedgeError as err:
        verdict, found, fix = Verdict.FAILED, f"{err.what}: {err.why}" if err.why else err.what, err.fix or _UNEXPLAINED
    return Check(name=probe.name, verdict=verdict, found=found, fix="" if verdict is Verdict.OK else fix)


def _unseen(probe: Probe, broken: str) -> Check:
    return Check(name=probe.name, verdict=Verdict.WARNING, found="not looked at", fix=f"fix '{broken}' first")
