"""The first minutes of a machine: until its agent answers, and its host key is known to nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.ports import Remote
from orchestrator.core.report import MachineReport, parse_ready
from orchestrator.core.units import format_duration
from orchestrator.engine import agent_client
from orchestrator.engine.waiting import wait_for
from orchestrator.engine.world import World

_BOOT = timedelta(minutes=15)
_ASKING = timedelta(seconds=30)


def await_boot(world: World, run_id: str, machine_id: str) -> tuple[Machine, MachineReport]:
    """Wait until a machine's agent answers, and replace a host key that came with its user-data.

    Returns:
        The machine, with the host key that it has now, and what its agent says.

    Raises:
        UnreachableError: it doesn't answer, or was gone before it did.
        KedgeError: its boot went wrong.
    """
    boot = _Boot(world, run_id, machine_id)
    seen = wait_for(boot.look, _BOOT, world.clock)
    if seen is None:
        raise UnreachableError(
            f"machine {machine_id} has not booted",
            why=f"it was given {format_duration(_BOOT)}; last seen: {boot.last_seen}",
            fix=f"end it with `kedge teardown {run_id}`",
        )
    return seen


class _Boot:
    """One machine's boot, looked at again and again."""

    def __init__(self, world: World, run_id: str, machine_id: str) -> None:
        self._world = world
        self._run_id = run_id
        self._id = machine_id
        self.last_seen = "nothing"

    def look(self) -> tuple[Machine, MachineReport] | None:
        machine = self._world.provider.describe(self._id)
        if machine is None:
            raise UnreachableError(
                f"machine {self._id} was gone before it had booted",
                why=f"last seen: {self.last_seen}",
                fix=f"try again with `kedge resume {self._run_id}`",
            )
        if machine.state is not MachineState.READY or machine.address is None:
            self.last_seen = f"{machine.state} at {machine.provider}"
            return None
        try:
            return self._greet(machine)
        except UnreachableError as err:
            self.last_seen = err.what
            return None

    def _greet(self, machine: Machine) -> tuple[Machine, MachineReport]:
        assert machine.address is not None  # noqa: S101 - as look has seen
        remote = self._world.connector.connect(machine.address)
        if self._world.provider.boots_alone:
            _require_ready(remote, machine)
        if machine.address.provisional:
            machine = _rekey(self._world, remote, machine)
        return machine, agent_client.report(remote, machine)


def _require_ready(remote: Remote, machine: Machine) -> None:
    """The sentinel, not an open port, says that a boot is over."""
    seen = remote.run(["cat", f"{machine.root}/ready"], timeout=_ASKING)
    if seen.exit_code != 0:
        raise UnreachableError(f"machine {machine.id} answers, and is still booting")
    ready = parse_ready(seen.stdout)
    if not ready.ok:
        raise KedgeError(
            f"the boot of machine {machine.id} went wrong",
            why="; ".join(f"{phase.phase}: {phase.error}" for phase in ready.phases if not phase.ok),
            fix=f"look at {machine.root}/boot.jsonl with `kedge ssh`, or end it with `kedge teardown`",
        )


def _rekey(world: World, remote: Remote, machine: Machine) -> Machine:
    """Replace the host key that others may have read, over the connection that it has verified."""
    assert machine.address is not None  # noqa: S101 - as look has seen
    host_key = agent_client.rekey(remote, machine)
    world.provider.pin(machine.id, host_key)
    return replace(machine, address=replace(machine.address, host_key=host_key, provisional=False))
