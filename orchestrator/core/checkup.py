"""Checkups: runs probes one after the other, and reports what each found and how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.errors import KedgeError

OFFERS, QUOTA = "offers", "quota"
"""The checks of offers and quotas: a launch that fails because of one of them has its own exit code."""

_UNEXPLAINED = "try again in a minute; report it if it stays so"
"""The fix to suggest if kedge doesn't recognize the provider's refusal."""


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """Something works less well, or can't be determined."""
    FAILED = "failed"
    """A launch would fail, or would run without a guard."""
    UNUSED = "unused"
    """This part isn't set up on this computer: nothing is wrong, and `fix` says how to set it up."""


ProbeResult = tuple[Verdict, str, str]
"""What a probe returns: the verdict, what was found, and the fix, which is empty only if nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of a checkup.

    Attributes:
        found: the present state.
        fix: what to do about it; empty if, and only if, nothing is wrong.
    """

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One check that can be run; running it changes nothing.

    Attributes:
        look: runs the check; if it raises a KedgeError, the check has failed.
        vital: if it fails, the later probes are skipped, because they would fail for the same reason.
    """

    name: str
    look: Callable[[], ProbeResult]
    vital: bool = False


def run_probes(probes: Sequence[Probe]) -> tuple[Check, ...]:
    """Run all probes, in this order."""
    checks: list[Check] = []
    broken = ""
    for probe in probes:
        if broken:
            checks.append(_skipped(probe, broken))
            continue
        check = run_probe(probe)
        checks.append(check)
        if probe.vital and check.verdict is Verdict.FAILED:
            broken = probe.name
    return tuple(checks)


def run_probe(probe: Probe) -> Check:
    """Run one probe."""
    try:
        verdict, found, fix = probe.look()
    except KedgeError as err:
        verdict, found, fix = Verdict.FAILED, f"{err.what}: {err.why}" if err.why else err.what, err.fix or _UNEXPLAINED
    return Check(name=probe.name, verdict=verdict, found=found, fix="" if verdict is Verdict.OK else fix)


def _skipped(probe: Probe, broken: str) -> Check:
    return Check(name=probe.name, verdict=Verdict.WARNING, found="not looked at", fix=f"fix '{broken}' first")
