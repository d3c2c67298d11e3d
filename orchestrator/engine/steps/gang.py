"""A run's several machines: waits for those that were created together, and notices that one is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from orchestrator.core.actions import AwaitMachine, DestroyMachine
from orchestrator.core.errors import KedgeError, UnfitMachineError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine, MachineState, newest_gang
from orchestrator.core.policy.recovery import is_loss
from orchestrator.core.protocol.report import MachineReport
from orchestrator.engine.events import Events
from orchestrator.engine.journal import journaled_together
from orchestrator.engine.observing.observe import find_machines, never_booted, rented_offer, why_ended
from orchestrator.engine.steps.boot import await_boots
from orchestrator.engine.steps.end_machine import Ending, end_machines
from orchestrator.engine.steps.follow import lost
from orchestrator.engine.world import World

_LOOKS = timedelta(seconds=15)
_ALIVE = (MachineState.BOOTING, MachineState.READY)


def await_gang(world: World, run_id: str, actions: Sequence[AwaitMachine], events: Events) -> None:
    """Wait until machines have booted; if one doesn't, end all machines of the run that haven't.

    Raises:
        UnfitMachineError: one doesn't boot in time, is gone, or is unfit; another offer may do.
        StillBillingError: the provider hasn't confirmed an end in time.
        KedgeError: the boot of one failed, as it would anywhere.
    """
    machine_ids = [action.machine_id for action in actions]
    try:
        with journaled_together(world.ledger, world.clock, run_id, actions):
            for machine, report in await_boots(world, run_id, machine_ids):
                world.ledger.put_machine(replace(machine, zstd=report.zstd))
    except KedgeError as err:
        machines = never_booted(world, run_id)
        ends = [DestroyMachine(machine_id=machine.id, leaves_results=True) for machine in machines]
        endings = [Ending(machine=machine, action=end) for machine, end in zip(machines, ends, strict=True)]
        end_machines(world, run_id, endings, events)
        if not machines or not isinstance(err, UnfitMachineError | UnreachableError):
            # Machines that have booted before may only be out of this computer's reach: no other offer changes that.
            raise
        unfit = UnfitMachineError(err.what, why=err.why, fix=f"rent others with `kedge resume {run_id}`")
        unfit.offer, unfit.machines = rented_offer(world, run_id, machine_ids[0]), len(machines)
        raise unfit from err


class GangWatch:
    """Notices that a run which is recovered loses a machine, while only its head is followed."""

    def __init__(self, world: World, spec: LaunchSpec) -> None:
        self._world = world
        self._spec = spec
        self._next_look = world.clock.now()
        self._seen: set[str] = set()

    def look(self, head: MachineReport) -> None:
        """Look for the machines at the provider, if it is time and the head's command isn't over.

        A provider that doesn't answer is asked later.

        Raises:
            MachineLostError: one that was there before is lost, and nobody asked for its end.
        """
        now = self._world.clock.now()
        applies = self._spec.job.num_nodes > 1 and self._spec.recover and head.command.state.is_live
        if not applies or now < self._next_look:
            return
        self._next_look = now + _LOOKS
        gone = next(filter(self._is_lost, self._missing()), None)
        if gone is not None:
            err = lost(self._world, gone)
            err.is_other = True
            raise err

    def _missing(self) -> list[Machine]:
        try:
            found = find_machines(self._world, self._spec.run_id)
        except KedgeError:
            return []
        there = {machine.id for machine in found if machine.state in _ALIVE}
        missing = self._seen - there
        self._seen |= there
        # Another command may have replaced a machine meanwhile.
        gang = newest_gang(self._world.ledger.machines(self._spec.run_id))
        return [machine for machine in gang if machine.id in missing]

    def _is_lost(self, machine: Machine) -> bool:
        return is_loss(None, why_ended(self._world, machine.id))
