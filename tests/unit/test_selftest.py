"""What a self-test finds in the results of its training, and which check each action is."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from orchestrator.core.actions import Action, AwaitMachine, StopCommand
from orchestrator.core.selftest import _CHECKS, check_name, find_fault

STEPS = "".join(f"{step}\n" for step in range(1, 13))
STATUS = {"step": 12, "starts": 2, "noticed": True}


@pytest.mark.parametrize(
    ("steps", "status", "fault"),
    [
        (STEPS, STATUS, ""),
        ("", STATUS, "the steps are none, not each of 1 to 12 once"),
        ("1 2 2", STATUS, "the steps are 1, 2, 2, not each of 1 to 12 once"),
        (STEPS + "13", STATUS, "the steps are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, not each of 1 to 12 once"),
        (STEPS, {**STATUS, "starts": 1}, "the training began 1 times, not twice"),
        (STEPS, {"noticed": True}, "the training began None times, not twice"),
        (STEPS, {**STATUS, "noticed": False}, "the training never saw the notice"),
        (STEPS, {"starts": 2}, "the training never saw the notice"),
        ("1 two", STATUS, "the results can't be read: invalid literal for int() with base 10: 'two'"),
    ],
)
def test_the_first_fault_of_a_training_is_reported(steps: str, status: dict[str, object], fault: str) -> None:
    """Each step was done once, over exactly one stop, and the notice was received."""
    assert find_fault(steps, json.dumps(status)) == fault


def test_results_that_are_no_json_are_a_fault() -> None:
    """Such as a file that was cut off."""
    assert find_fault(STEPS, "").startswith("the results can't be read: ")


def test_every_action_is_a_check() -> None:
    """An action without one would end the self-test with a KeyError."""
    assert set(_CHECKS) == set(get_args(Action))
    assert check_name(AwaitMachine(machine_id="m")) == "boot"
    assert check_name(StopCommand(machine_id="m")) == "stop"
