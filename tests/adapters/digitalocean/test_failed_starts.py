"""A creation that fails after its launch was killed: the next command that looks at the machine notices the failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import UnfitMachineError
from orchestrator.core.machine import EndedBy, MachineState
from orchestrator.engine.steps.boot import await_boot
from tests.adapters.digitalocean.doomed import Doomed, doomed_commands
from tests.adapters.digitalocean.world import M1, RUN, DoWorld
from tests.support.fakes import make_world


@pytest.fixture(scope="module")
def doomed() -> Iterator[Doomed]:
    with doomed_commands() as commands:
        yield commands


@pytest.fixture
def ledger(do: DoWorld) -> Iterator[SqliteLedger]:
    made = SqliteLedger(do.folder / "ledger.db", do.clock)
    yield made
    made.close()


@pytest.mark.parametrize("vanishes", [False, True], ids=["stays new", "vanishes"])
def test_a_droplet_whose_creation_has_failed_is_not_waited_for(
    do: DoWorld, doomed: Doomed, ledger: SqliteLedger, *, vanishes: bool
) -> None:
    """Its launch was killed before the action ended. kedge does not wait for a boot, and leaves nothing of it.

    fact: do-creation-errored
    """
    do.api.faults.give_up_next(20, vanishes=vanishes)
    doomed.create_and_die(do, answered=True)
    (droplet,) = do.api.droplets()
    do.provider().guard(M1)
    young = do.provider().describe(M1)
    assert young is not None
    assert young.state is MachineState.BOOTING
    assert do.provider().why_ended(M1) is None
    do.api.advance(20)
    world = replace(make_world(ledger, do.provider()), clock=do.clock)  # type: ignore[arg-type]
    asked_at = do.clock.now()
    with pytest.raises(UnfitMachineError, match=f"{M1} could not be started") as caught:
        await_boot(world, RUN, M1)
    assert do.clock.now() - asked_at < timedelta(seconds=5)
    assert caught.value.why == f"the creation of droplet {droplet.id} was accepted, and then ended `errored`"
    assert [machine.state for machine in do.provider().machines()] == [MachineState.ENDING]
    end = do.provider().why_ended(M1)
    assert end is not None
    assert end.by is EndedBy.START
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None
    do.provider().release(RUN)
    assert do.api.meter.billing() == []


def test_a_creation_that_cannot_be_checked_does_not_end_the_machine(do: DoWorld) -> None:
    """A token that may not read actions is enough for everything else."""
    do.api.settings.activation_seconds = 3600
    do.api.faults.fail_next("GET", "/v2/actions/*", status=403, times=None)
    do.provider().create(do.order())
    seen = do.provider().describe(M1)
    assert seen is not None
    assert seen.state is MachineState.BOOTING
    assert do.provider().why_ended(M1) is None
