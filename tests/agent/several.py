"""Several tasks on one machine: starts them, and reads the state of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agent.box import RUN, Box, wait_for
from tests.agent.configs import USUAL

UNTIL_TOLD = 'until [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.02; done'
TASK = ("supervisor", "restarts", "restart_after", "grace")


def task(name: str, command: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": command, **{key: USUAL[key] for key in TASK}, **more}


def start(box: Box, *tasks: dict[str, Any], options: tuple[str, ...] = (), **run: Any) -> dict[str, Any]:
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "tasks": tasks, **run}
    return dict(box.ask("start", *options, stdin=json.dumps(config).encode()))


def states(box: Box) -> dict[str, str]:
    return {name: each["command"]["state"] for name, each in box.report()["tasks"].items()}


def await_states(box: Box, **expected: str) -> None:
    wait_for(lambda: {name: state for name, state in states(box).items() if name in expected} == expected)


def results(box: Box, name: str) -> Path:
    return box.root / "results" / name
