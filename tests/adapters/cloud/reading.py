"""Read the records of every cloud as facts with the same names.

Only this module knows how a record is read. If its type or a field is renamed, change this module:
the files of `records/` and their facts stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.adapters.providers.aws import record as aws
from orchestrator.adapters.providers.digitalocean.run_resources import record as digitalocean

RECORDS = Path(__file__).parent / "records"
CLOUDS = ("aws", "do", "amd")

Facts = Mapping[str, Any]


def read_machine(cloud: str, folder: Path, machine_id: str) -> Facts | None:
    """Read a machine's record as the cloud's provider does; None if there is none."""
    record = _open(cloud, folder).machine(machine_id)
    names = (*_OF_ALL, *_OF_ONE[cloud])
    return None if record is None else _plain({name: getattr(record, name) for name in names})


def write_machine_back(cloud: str, folder: Path, machine_id: str) -> None:
    """Read a machine's record, and write it in this version's format."""
    records = _open(cloud, folder)
    record = records.machine(machine_id)
    assert record is not None
    records.keep_machine(record)


def list_machines(cloud: str, folder: Path) -> list[str]:
    """List the machines that have a record."""
    return [record.id for record in _open(cloud, folder).machines()]


def read_run(cloud: str, folder: Path, run_id: str) -> Facts:
    """Read a run's record; an empty one if there is none."""
    return _plain(_open(cloud, folder).run(run_id))


def list_runs(cloud: str, folder: Path) -> list[str]:
    """List the runs that have a record."""
    return [record.id for record in _open(cloud, folder).runs()]


def write_run_back(cloud: str, folder: Path, run_id: str) -> bytes:
    """Read a run's record, and write it again unchanged; return the file's content."""
    records: Any = _open(cloud, folder)
    records.keep_run(records.run(run_id))
    return (folder / "runs" / f"{run_id}.json").read_bytes()


def expected_facts(cloud: str, kind: str) -> dict[str, Any]:
    """Return the expected facts of each record of a cloud, by id.

    Args:
        cloud: one of CLOUDS.
        kind: `machines` (None for a damaged record), `runs`, or `damaged runs` (read as empty records).
    """
    said: dict[str, Any] = json.loads((RECORDS / cloud / "facts.json").read_text())[kind]
    return said


def all_records(*kinds: str) -> Sequence[tuple[str, str]]:
    """List all pairs of a cloud and the id of one of its records of these kinds."""
    return [(cloud, each) for cloud in CLOUDS for kind in kinds for each in expected_facts(cloud, kind)]


def _open(cloud: str, folder: Path) -> aws.Records | digitalocean.Records:
    return aws.Records(folder) if cloud == "aws" else digitalocean.Records(folder)


def _plain(facts: object) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(msgspec.json.encode(facts))
    return plain


_OF_ALL = (
    *("id", "run_id", "region", "account", "host_key", "pinned", "asked_at", "unclear_since", "deadline_at"),
    *("lifetime_seconds", "usd_per_hour", "gpus", "volumes", "provider_id", "attempt"),
)
_OF_ONE = {
    "aws": ("token", "armed", "private", "jump_host", "proxy_command"),
    "do": ("action", "noted_at", "young_from", "ended"),
    "amd": ("action", "noted_at", "young_from", "ended"),
}
"""Facts that only the records of one cloud have."""
