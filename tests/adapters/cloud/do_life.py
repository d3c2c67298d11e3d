"""Run a whole life at DigitalOcean or the AMD Developer Cloud, and collect its requests and records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from orchestrator.core.job import AtEnd, VolumeSpec
from tests.adapters.cloud.goldens import AGENT, name_all, read_user_data, state_files
from tests.adapters.digitalocean.world import PLAIN, RUN, DoWorld
from tests.cloudbox.rest.calls import Seen

_SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20, at_end=AtEnd.SNAPSHOT)
_OWN = VolumeSpec(name="Lab_Data-2", target="data/lab", size_gib=1, at_end=AtEnd.DELETE)


@dataclass(frozen=True, kw_only=True)
class DoLife:
    """What is compared with the golden files.

    Attributes:
        requests: all requests that change something, by method and path.
        user_data: the user-data of the first machine.
        run_record: the run's record while its machines lived.
        files: the files in the state folder at that time.
    """

    requests: Mapping[str, Sequence[Any]]
    user_data: str
    run_record: str
    files: Sequence[str]


def live(do: DoWorld) -> DoLife:
    """Create two machines, one of them with data volumes, destroy them, and release the run."""
    provider = do.provider()
    volumes = (_SCANS, _OWN) if do.name == "do" else ()
    first = provider.create(do.order(1, agent_archive=AGENT, volumes=volumes))
    size = PLAIN if do.name == "do" else do.order().instance_type
    second = provider.create(
        do.order(2, agent_archive=AGENT, instance_type=size, lifetime_seconds=7200, usd_per_hour=Decimal("0.03571"))
    )
    files = state_files(do.folder)
    folder = do.folder / do.name
    record = (folder / "runs" / f"{RUN}.json").read_text()
    attempts = [_attempt(folder / "machines" / f"{machine.id}.json") for machine in (first, second)]
    made = {volume.name: str(volume.id) for volume in do.api.cloud.account.volumes.values()}
    provider.destroy(first.id)
    provider.destroy(second.id)
    provider.release(RUN)

    run = json.loads(record)
    names = {
        first.provider_id: "<first>",
        second.provider_id: "<second>",
        **dict(zip(attempts, ("<first attempt>", "<second attempt>"), strict=True)),
        **{found: f"<volume {name}>" for name, found in made.items()},
        **{run[name]: f"<{name}>" for name in ("firewall", "project") if run[name]},
        do.api.endpoint: "<endpoint>",
    }
    calls = do.api.calls
    user_data = calls.find("POST", "/v2/droplets")[0].body["user_data"]
    return DoLife(
        requests=_by_path(name_all(list(_requests(calls)), names)),
        user_data=read_user_data(user_data, names),
        run_record=name_all(record, names),
        files=files,
    )


def _attempt(path: Any) -> str:
    found: str = json.loads(path.read_text())["attempt"]
    return found


def _requests(calls: Iterable[Seen]) -> Iterable[tuple[str, Any]]:
    for call in calls:
        if call.method != "GET":
            body = {**call.query, **call.body}
            if "user_data" in body:
                body["user_data"] = "<user-data>"
            yield f"{call.method} {call.path}", body


def _by_path(requests: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for path, body in requests:
        found.setdefault(path, []).append(body)
    return {path: found[path] for path in sorted(found)}
