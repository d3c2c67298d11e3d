"""Says how long a run is expected to take, and on what that is based: a measurement, or the job file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from orchestrator.core.job import Job
from orchestrator.core.task import Basis
from orchestrator.core.task_order import expected_duration


class Source(StrEnum):
    """What an expectation is based on."""

    RUNS = "measured"
    """Runs of this job in this mode, on this type of machine, by this computer's ledger."""
    PUBLISHED = "published"
    """The job file, from somebody else's figures."""
    ESTIMATED = "estimated"
    """The job file, where nobody has measured it."""
    FILE = "job file"
    """The job file, which may have measured it elsewhere."""
    UNKNOWN = "unknown"


_SOURCES = {Basis.PUBLISHED: Source.PUBLISHED, Basis.ESTIMATED: Source.ESTIMATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How long a run will take; None if that is unknown.

    Attributes:
        says: what it is based on, in words.
    """

    duration: timedelta | None
    source: Source
    says: str


def expect_of(job: Job, usual: timedelta | None, instance_type: str) -> Expectation:
    """Return what is expected of a job: what its runs on this type of machine took, or else what its file says."""
    named = f" on {instance_type}" if instance_type else ""
    if usual is not None:
        says = f"measured, in earlier runs of this job and mode{named}"
        return Expectation(duration=usual, source=Source.RUNS, says=says)
    expected, basis = expected_duration(job), job.expect.basis
    if expected is None:
        says = f"unknown until a run has been measured{named}; nothing says whether the deadline is enough"
        return Expectation(duration=None, source=Source.UNKNOWN, says=says)
    said = f", {basis}" if basis is not None else ""
    source = _SOURCES.get(basis, Source.FILE) if basis is not None else Source.FILE
    return Expectation(duration=expected, source=source, says=f"the job file's `expect`{said}")
