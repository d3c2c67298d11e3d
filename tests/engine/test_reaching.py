"""How commands reach a machine whose launch died while it booted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.engine.steps.reaching import reach
from tests.support.fakes import M1, MACHINE, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path, SystemClock())
    yield opened
    opened.close()


def find(ledger: SqliteLedger, known: Machine, *there: Machine) -> tuple[Machine, list[str]]:
    """Reach a machine as the ledger knows it; return the messages, too."""
    said: list[str] = []
    return reach(make_world(ledger, FakeProvider(there=there)), known, said.append), said


def test_a_machine_that_has_booted_is_reached_without_asking_its_provider(ledger: SqliteLedger) -> None:
    """Even if the provider no longer knows it."""
    booted = replace(MACHINE, address=ADDRESS)
    assert find(ledger, booted) == (booted, [])


def test_a_machine_that_was_lost_before_it_booted_is_reported(ledger: SqliteLedger) -> None:
    """The error comes at once."""
    with pytest.raises(UnreachableError, match="was gone before it had booted"):
        find(ledger, MACHINE)


@pytest.mark.parametrize("state", [MachineState.ENDING, MachineState.UNKNOWN])
def test_there_is_no_wait_for_a_machine_that_will_never_boot(ledger: SqliteLedger, state: MachineState) -> None:
    """It is half created or already ending: the fix is another machine."""
    with pytest.raises(UnreachableError) as caught:
        find(ledger, MACHINE, replace(MACHINE, state=state))
    assert M1 in caught.value.what
    assert "kedge resume" in caught.value.fix


def test_there_is_no_wait_for_another_computer_s_machine(ledger: SqliteLedger) -> None:
    """It is ready, and its keys are on the other computer."""
    with pytest.raises(UnreachableError, match="can't be reached from this computer"):
        find(ledger, MACHINE, MACHINE)
