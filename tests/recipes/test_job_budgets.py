"""infra/jobs/*.yaml on clouds: each mode, and each command in their headers and documents, fits its budget to its end.

The prices are the snapshots', and for Lambda the box's, which are recorded ones; on demand, as a plan counts them for
spot machines, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cloudbox.lambdacloud.catalogue import TYPES

ROOT = Path(__file__).parents[2]
JOBS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "infra" / "jobs").glob("*.yaml")
}
AWS: dict[str, Any] = json.loads((ROOT / "infra" / "aws" / "offers.json").read_text())
DROPLETS: dict[str, Any] = json.loads((ROOT / "infra" / "digitalocean" / "offers.json").read_text())
HOURS = {"m": Decimal(1) / 60, "h": Decimal(1), "d": Decimal(24)}
AWS_ADDRESS_USD_PER_HOUR = Decimal("0.005")
AWS_VOLUME_USD_PER_GIB_HOUR = Decimal("0.15") / 730
"""With 500 MiB/s and the root disk: more than any of the jobs' volumes costs."""


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield the job, the mode and the flags of each mode, and of each command that is written somewhere."""
    for name, job in JOBS.items():
        yield from ((name, mode, "") for mode in job["modes"])
        yield from written(name, ROOT / "infra" / "jobs" / f"{name}.yaml")
    for path in (ROOT / "docs" / "workflows").glob("*.md"):
        yield from written(path.stem, path)


def written(name: str, path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text().splitlines():
        job = re.search(r"--job (\S+?)(?:\.yaml)?\s", line)
        for piece in re.split(r"(?=--mode )", line)[1:]:
            mode = re.match(r"--mode ([\w-]+)", piece)
            known = JOBS.get(job[1] if job else name, {"modes": {}})
            if mode and mode[1] in known["modes"]:
                yield job[1] if job else name, mode[1], piece


def flag(name: str, flags: str) -> str:
    found = re.search(rf"--{name} ([\w.]+)", flags)
    return found[1] if found else ""


def list_types(cloud: str) -> dict[str, tuple[str, int, Decimal]]:
    """Map a cloud's types to GPU, number of them, and dollars per hour."""
    if cloud == "lambda":
        return {
            each.name: (each.gpu.lower().partition(" ")[0], each.gpus, Decimal(each.cents_per_hour) / 100)
            for each in TYPES
        }
    if cloud == "aws":
        rows = [row for row in AWS["prices"] if row["region"] == "us-east-1"]
        sizes = [{**AWS["types"][row["type"]], **row, "slug": row["type"]} for row in rows]
    else:
        sizes = DROPLETS[cloud]["sizes"]
    return {each["slug"]: (each["gpu"], each["gpus"], Decimal(each["usd_per_hour"])) for each in sizes}


def price(cloud: str, kind: str, accelerators: str) -> Decimal:
    """Return dollars per hour of a type, or, if that is empty, of the cheapest with these GPUs."""
    types = list_types(cloud)
    gpu, _, count = accelerators.lower().partition(":")
    wanted = [kind] if kind else [name for name, each in types.items() if each[:2] == (gpu, int(count or 1))]
    return min(types[name][2] for name in wanted)


def resources_of(name: str, mode: str, flags: str) -> tuple[str, dict[str, Any]]:
    """Return the cloud on which a command runs a mode, and what it asks for there."""
    resources = {**JOBS[name].get("resources", {}), **JOBS[name]["modes"][mode].get("resources", {})}
    return flag("provider", flags) or str(resources["infra"]).partition("/")[0], resources


COMMANDS = sorted(set(commands()))


@pytest.mark.parametrize(("name", "mode", "flags"), [each for each in COMMANDS if resources_of(*each)[0] != "local"])
def test_what_is_written_fits_its_budget(name: str, mode: str, flags: str) -> None:
    """Else the plan refuses it, and the reader has copied a command that does nothing."""
    job = {**JOBS[name], **JOBS[name]["modes"][mode]}
    cloud, resources = resources_of(name, mode, flags)
    kind = flag("instance-type", flags) or str(resources.get("instance_type", ""))
    hourly = price(cloud, kind, str(resources.get("accelerators", "")))
    if cloud == "aws":
        gib = sum(volume["size"] for volume in job.get("volumes", {}).values())
        hourly += AWS_ADDRESS_USD_PER_HOUR + gib * AWS_VOLUME_USD_PER_GIB_HOUR
    until = flag("ttl", flags) or str(job["deadline"])
    worst = hourly * job.get("num_nodes", 1) * Decimal(until[:-1]) * HOURS[until[-1]]
    assert worst <= Decimal(flag("budget", flags) or str(job["budget"]).lstrip("$")), (cloud, kind, until)


def test_commands_of_all_jobs_are_found() -> None:
    """With the alternatives in a header."""
    assert {name for name, _, _ in COMMANDS} == set(JOBS)
    assert any(flag("instance-type", flags) == "p3.8xlarge" for _, _, flags in COMMANDS)


def test_prices_of_each_cloud_are_found() -> None:
    """By type and by GPU."""
    assert price("amd", "", "MI300X") == Decimal("1.99")
    assert price("lambda", "", "A100:4") == Decimal("7.96")
    assert price("aws", "", "T4:1") == price("aws", "g4dn.xlarge", "")
