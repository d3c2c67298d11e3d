"""Returns a machine that can be reached: waits for one that is still booting, as a launch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.engine.steps.boot import BOOT, await_boot
from orchestrator.engine.world import World


def reach(world: World, machine: Machine, tell: Callable[[str], None], *, at_most: timedelta = BOOT) -> Machine:
    """Return a machine of the ledger with its current address.

    The provider is asked only about a machine whose boot the ledger has never seen complete: its creator may have died
    since. A machine whose boot failed is still returned if it has an address: somebody may want to look at it.

    Args:
        world: the run's ports.
        machine: as the ledger has it; the caller prevents others from acting on its run.
        tell: receives a remark if there is something to wait for.
        at_most: how long it may take to boot.

    Raises:
        UnreachableError: it is being reclaimed, doesn't boot in time, or this computer has no key for it.
        MachineLostError: it is gone.
        BadRequestError: it waits for secrets that this computer doesn't have.
    """
    if machine.has_booted:
        return machine
    there = world.provider.describe(machine.id)
    _refuse_unreachable(machine, there)
    if there is not None:
        tell(f"machine {machine.id} is still booting: waiting for it")
    try:
        booted, report = await_boot(world, machine.run_id, machine.id, at_most=at_most)
    except (BadRequestError, UnreachableError):
        raise
    except KedgeError:
        there = world.provider.describe(machine.id)
        if there is None or there.address is None:
            raise
        return there
    booted = replace(booted, zstd=report.zstd)
    world.ledger.put_machine(booted)
    return booted


def _refuse_unreachable(machine: Machine, there: Machine | None) -> None:
    if there is not None and there.state is MachineState.READY and there.address is None:
        raise UnreachableError(
            f"machine {machine.id} can't be reached from this computer",
            why="the keys to it are on the computer that launched it",
            fix=f"end it with `kedge teardown {machine.run_id} --no-fetch`, or continue on that computer",
        )
    if there is not None and there.state in (MachineState.ENDING, MachineState.UNKNOWN):
        raise UnreachableError(
            f"machine {machine.id} can't be reached: {machine.provider} says that it is {there.state}",
            fix=f"give the run another with `kedge resume {machine.run_id}`",
        )
