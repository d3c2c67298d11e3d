"""The checks of a self-test, and what its training must have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    FetchResults,
    FollowCommand,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StageSecrets,
    StartCommand,
    StopCommand,
)
from orchestrator.core.checkup import Verdict

STEPS = 12
"""Steps of the bundled training (infra/selftest/train.py)."""

_CHECKS: dict[type[Action], str] = {
    StageCode: "code",
    SendCode: "code",
    StageData: "data",
    StageSecrets: "secrets",
    SendData: "data",
    CreateMachine: "creation",
    AwaitMachine: "boot",
    StartCommand: "start",
    StopCommand: "stop",
    FollowCommand: "training",
    FetchResults: "results",
    ExtendDeadline: "deadline",
    DestroyMachine: "teardown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One line of a self-test's report.

    Attributes:
        verdict: a warning means that a part wasn't reached, or is weaker than it could be.
        found: what happened, or what failed and why.
    """

    name: str
    verdict: Verdict
    seconds: float
    found: str


def check_name(action: Action) -> str:
    """Name the check that performs an action of a plan."""
    return _CHECKS[type(action)]


def find_fault(steps_log: str, status_json: str) -> str:
    """Return what is wrong with the results of a training that was stopped, resumed and given notice; empty if nothing.

    Every step writes a checkpoint, so no step may be repeated, and none may be missing.
    """
    try:
        status = json.loads(status_json)
        steps = [int(line) for line in steps_log.split()]
    except (ValueError, RecursionError) as err:
        return f"the results can't be read: {err}"
    if steps != list(range(1, STEPS + 1)):
        return f"the steps are {_ranges(steps)}, not each of 1 to {STEPS} once"
    if status.get("starts") != 2:
        return f"the training began {status.get('starts')} times, not twice"
    if not status.get("noticed"):
        return "the training never saw the notice"
    return ""


def _ranges(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
