"""A run's configuration, written flat: what is the run's, and what is its only task's."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.agent.base.parse import parse_run_config
from orchestrator.agent.base.wire import RunConfig, TaskConfig

USUAL: dict[str, Any] = {
    "run": "digits-1a2b",
    "job": "digits",
    "mode": "",
    "command": "python train.py",
    "setup": "",
    "supervisor": "nohup",
    "restarts": 0,
    "restart_after": 0.05,
    "grace": 10.0,
}


def on_the_wire(flat: dict[str, Any]) -> dict[str, Any]:
    """Sort what is the task's from what is the run's, unless the tasks are given; `envs` are the run's."""
    own = {name: flat[name] for name in TaskConfig.fields if name in flat and name != "envs"}
    run = {name: value for name, value in flat.items() if name not in own}
    return {"tasks": [{"name": "", **own}], **run}


def encode(flat: dict[str, Any]) -> bytes:
    return json.dumps(on_the_wire(flat)).encode()


def run_config(**more: Any) -> RunConfig:
    return parse_run_config(encode({**USUAL, **more}))
