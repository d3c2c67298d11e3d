"""Maps a job file's keys to the fields of core.job.Job, and merges a part of the file into a job.

A key with the same name in both needs no entry here.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.parts import Part, ResourcesPart
from orchestrator.adapters.jobfile.values.requirements import Requirements
from orchestrator.core.job import Job

_OF_RESOURCES = {
    "cloud": "provider",
    "region": "regions",
    "disk_size": "disk_gib",
    "disk_throughput": "disk_mibps",
    "max_hourly_cost": "max_usd_per_hour",
}
_OF_JOB = {"check": "checks", "deadline": "time_limit", "budget": "budget_usd", "left_behind": "left_behind_bytes"}
_APART = frozenset(
    {
        *("name", "workdir", "modes", "arguments", "envs", "secrets", "resources", "resume", "sudo"),
        *("data", "file_mounts", "volumes", "provider", "run", "tasks", "outputs", "checkpoints"),
    }
)
"""Keys that job.py reads, because their values depend on other keys too."""


def requirements_of(part: ResourcesPart) -> Requirements:
    """Return the requirements of a `resources` block."""
    given = part.given()
    place: Requirements = given.pop("infra", {})
    return {_OF_RESOURCES.get(key, key): value for key, value in given.items()} | place


def merge_part(job: Job, part: ModePart) -> Job:
    """Merge a part into a job, blocks key by key; keys in `_APART` are left out."""
    given = {_OF_JOB.get(key, key): value for key, value in part.given().items() if key not in _APART}
    blocks = {
        field: replace(getattr(job, field), **value.given())
        for field, value in given.items()
        if isinstance(value, Part)
    }
    return msgspec.structs.replace(job, **(given | blocks))
