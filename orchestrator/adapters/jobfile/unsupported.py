"""SkyPilot's keys that kedge doesn't support, and what to use instead.

From SkyPilot's reference (docs.skypilot.co/en/latest/reference/yaml-spec.html) and its schema
(github.com/skypilot-org/skypilot, sky/utils/schemas.py), read in November 2026.
"""

from __future__ import annotations

from orchestrator.adapters.jobfile.problems import KeyPath

_ONE_PLACE = "name one place in `resources.infra`, and another one in a mode"
_STORAGE = "name a data volume under `volumes`, or keep files beside the job and list them under `data`"

_TASK = {
    "api_server_access": "leave it out: kedge has no server",
    "config": "leave it out: accounts and regions come from the provider's own settings",
    "event_callback": "call what you need at the end of `run`",
    "experimental": "leave it out",
    "file_mounts_mapping": "use `file_mounts` or `data`",
    "inputs": "use `data`",
    "pool": "leave it out: each run has a machine of its own",
    "service": "leave it out: kedge runs training commands that end, not services",
    "volume_mounts": _STORAGE,
}

_RESOURCES = {
    "accelerator_args": "leave it out: it is for TPUs",
    "any_of": _ONE_PLACE,
    "autostop": "use `deadline`: the machine is gone by then, and ends by itself when the run is done",
    "cpus": "use `instance_type`; `kedge offers` lists types with their CPUs",
    "disk_tier": "leave it out: the root disk is the provider's standard one",
    "ephemeral_storage": "use `disk_size`",
    "gpus": "use `accelerators`",
    "job_recovery": "use `recover: true` for lost machines, and `supervisor.restarts` for commands that fail",
    "labels": "leave it out: kedge tags what it creates with the run",
    "local_disk": "use `instance_type`",
    "memory": "use `instance_type`; `kedge offers` lists types with their memory",
    "network_tier": "leave it out",
    "ordered": _ONE_PLACE,
    "ports": "leave it out: only SSH is open; forward a port with `kedge ssh RUN -- -L 8081:localhost:8081`",
    "priority": "leave it out: there is no queue",
    "priority_class": "leave it out: there is no queue",
    "spot_recovery": "use `recover: true` for lost machines, and `supervisor.restarts` for commands that fail",
    "volumes": _STORAGE,
}

NOT_HERE = tuple(sorted({*_TASK, *_RESOURCES}))
"""All of these keys, without the blocks that they belong to."""


def instead_of(key_path: KeyPath) -> str | None:
    """Say what to use instead of a key of SkyPilot's; None for a key that isn't one."""
    *around, key = key_path
    if not around:
        return _TASK.get(str(key))
    return _RESOURCES.get(str(key)) if around[-1] == "resources" else None
