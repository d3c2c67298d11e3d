"""Stopping a command saves no money, and `stop` says so."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from orchestrator.app.acting import stop_notes
from orchestrator.core.machine import Machine, MachineState

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def machine(provider: str, usd_per_hour: str) -> Machine:
    return Machine(
        id="digits-1-m1",
        run_id="digits-1",
        provider=provider,
        provider_id="7",
        state=MachineState.READY,
        root="/opt/kedge",
        created_at=NOW,
        deadline_at=NOW,
        usd_per_hour=Decimal(usd_per_hour),
    )


@pytest.mark.parametrize("provider", ["do", "amd"])
def test_a_droplet_goes_on_billing_and_powering_it_off_would_not_help(provider: str) -> None:
    """Power-off is never offered as a saving where it is none."""
    (note,) = stop_notes(machine(provider, "1.99"))
    assert "bills $1.99 an hour" in note
    assert "powering it off would save nothing" in note
    assert "until it is deleted" in note


def test_elsewhere_the_machine_goes_on_billing_too() -> None:
    """The command has stopped, the machine hasn't."""
    (note,) = stop_notes(machine("aws", "1.006"))
    assert "bills" in note
    assert "powering" not in note


def test_stopping_on_the_users_own_computer_needs_no_note() -> None:
    """It costs nothing."""
    assert stop_notes(machine("local", "0")) == ()
