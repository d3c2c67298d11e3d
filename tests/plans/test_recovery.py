"""Whether a run has lost its machine, as data: its command's state, the machine's end, and what is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator.core.machine import MachineEnd
from orchestrator.core.policy.recovery import describe_end, is_loss
from orchestrator.core.protocol.report import Command
from tests.plans.cases import read_cases


@pytest.mark.parametrize("case", read_cases("recovery"))
def test_recovery(case: dict[str, Any]) -> None:
    """The machine was lost or it wasn't, and its end is told in the case's words."""
    command = msgspec.convert(case["command"], Command | None)
    end = msgspec.convert(case["end"], MachineEnd | None)
    assert is_loss(command, end) is case["lost"]
    if end is not None:
        assert describe_end("aws", end) == case["told"]
