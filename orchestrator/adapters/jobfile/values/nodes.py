"""Parses the number of a run's machines, and refuses what several machines can't have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, StartFrom

MOST_NODES = 64
"""A typing error mustn't rent thousands."""

RANGE_PATTERN = r"^[0-9]+\.\.[0-9]+$"


def parse_nodes(text: str) -> int:
    """Parse a number of machines.

    Raises:
        BadRequestError: it isn't a whole number from 1 to 64.
    """
    if not (re.fullmatch(r"[0-9]{1,4}", text) and 1 <= int(text) <= MOST_NODES):
        raise BadRequestError(
            f"{quoted(text)} is not a number of machines",
            why=f"a run has 1 to {MOST_NODES} machines",
            fix="write for example 4, or leave it out for one machine",
        )
    return int(text)


def parse_elastic(text: str) -> tuple[int, int]:
    """Parse `2..4`: with how many machines, at least and at most, the command can go on.

    Raises:
        BadRequestError: it isn't such a range.
    """
    found = re.fullmatch(r"([0-9]{1,4})\.\.([0-9]{1,4})", text)
    least, most = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= least <= most <= MOST_NODES:
        raise BadRequestError(
            f"{quoted(text)} is not a range of machines",
            why=f"it has the least and the most number of machines, from 1 to {MOST_NODES}",
            fix="write for example 2..4",
        )
    return least, most


def find_unfit(job: Job) -> Iterator[tuple[str, BadRequestError]]:
    """Yield what doesn't fit a job's number of machines: the key, and what is wrong with it."""
    count, resources = job.num_nodes, job.resources
    if job.elastic is not None and not job.elastic[0] <= count <= job.elastic[1]:
        least, most = job.elastic
        yield (
            "elastic",
            BadRequestError(
                f"the run has {count} machine{'s' if count > 1 else ''}, which is not within {least}..{most}",
                why="a launch rents `num_nodes` machines; `elastic` says with how many the command can go on",
                fix=f"write `num_nodes: {most}`, or another range",
            ),
        )
    if count > 1 and resources.volumes:
        yield (
            "volumes",
            BadRequestError(
                f"{count} machines can't share the volume {resources.volumes[0].name}",
                why="a data volume can be attached to one machine only",
                fix="leave `volumes` out and name the data under `data`: each machine gets its own copy",
            ),
        )
    if count > 1 and job.start is StartFrom.BOOT:
        yield (
            "start",
            BadRequestError(
                f"{count} machines can't start at boot",
                why="this computer tells each machine the addresses of the others",
                fix="write `start: ssh`, or leave `start` out",
            ),
        )
