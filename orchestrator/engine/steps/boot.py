"""Waits for a machine's boot: until its agent answers, and nobody else can know its host key."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from orchestrator.core.errors import BadRequestError, KedgeError, UnfitMachineError, UnreachableError
from orchestrator.core.machine import EndedBy, Machine, MachineState, SshAddress
from orchestrator.core.ports import Completed, Remote
from orchestrator.core.protocol.readiness import BURN_IN, Readiness, parse_ready
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.protocol.wire import SUPPLIED
from orchestrator.core.values.units import format_duration
from orchestrator.engine import agent_client
from orchestrator.engine.observing.observe import last_creation, why_ended
from orchestrator.engine.steps.follow import MachineLostError
from orchestrator.engine.steps.run_config import read_secrets
from orchestrator.engine.world import World

_log = logging.getLogger(__name__)

# A machine whose image has no torch downloads gigabytes.
BOOT = timedelta(minutes=30)
"""How long a boot may take."""

# Frequent at first, then ever more rarely.
_FIRST = timedelta(milliseconds=100)
_LONGEST = timedelta(seconds=3)
_ASKING = timedelta(seconds=30)
_SUPPLYING = timedelta(minutes=5)
_RELOADING = timedelta(seconds=30)
"""How long sshd may take to offer a new key: on a busy machine, seconds pass until it listens again."""
_LOST = timedelta(minutes=1)
"""How long a machine with an address may be in an unknown state: its provider may only be slow to report."""

# systemd restarts an interrupted boot a few times; after it has given up, the sentinel won't appear any more.
_READY = (
    "sh",
    "-c",
    'if [ -e "$0" ]; then cat "$0"; elif systemctl --quiet is-failed kedge-boot.service 2>/dev/null; '
    'then echo "given up"; else echo "not yet"; fi',
)
_NOT_YET = b"not yet\n"
_GIVEN_UP = b"given up\n"


def await_boot(
    world: World, run_id: str, machine_id: str, *, at_most: timedelta = BOOT
) -> tuple[Machine, MachineReport]:
    """Wait for one machine, as `await_boots` does for several."""
    (booted,) = await_boots(world, run_id, [machine_id], at_most=at_most)
    return booted


def await_boots(
    world: World, run_id: str, machine_ids: Sequence[str], *, at_most: timedelta = BOOT
) -> list[tuple[Machine, MachineReport]]:
    """Wait until machines' agents answer; send their supplies, and replace host keys that came with user-data.

    The machines are looked at in turn, so that none waits for another one's boot.

    Returns:
        The machines, with their current host keys, and their agents' reports.

    Raises:
        UnreachableError: one doesn't answer.
        MachineLostError: one ended before it did.
        UnfitMachineError: the provider couldn't start one, or its GPUs fail the burn-in.
        BadRequestError: one waits for secrets that this computer doesn't have.
        KedgeError: the boot of one failed.
    """
    boots = [_Boot(world, run_id, machine_id) for machine_id in machine_ids]

    def look() -> list[tuple[Machine, MachineReport]] | None:
        # Each is looked at in every round, although an earlier one isn't done.
        seen = [boot.look_once() for boot in boots]
        done = [each for each in seen if each is not None]
        return done if len(done) == len(boots) else None

    booted = world.poll_until(look, at_most, world.clock, first=_FIRST, longest=_LONGEST)
    if booted is None:
        late = next(boot for boot in boots if boot.booted is None)
        raise UnreachableError(
            f"machine {late.machine_id} has not booted",
            why=f"it had {format_duration(at_most)} for that; last seen: {late.last_seen}",
            fix=f"end it with `kedge teardown {run_id}`",
        )
    return booted


class _Boot:
    """One machine's boot, observed repeatedly.

    Attributes:
        booted: the machine and its agent's report, once it has booted.
        last_seen: what was seen of it last.
    """

    def __init__(self, world: World, run_id: str, machine_id: str) -> None:
        self._world = world
        self._run_id = run_id
        self.machine_id = machine_id
        self.booted: tuple[Machine, MachineReport] | None = None
        self._supplied = False
        self._lost_since: datetime | None = None
        self.last_seen = "nothing"

    def look_once(self) -> tuple[Machine, MachineReport] | None:
        """Look at the machine, unless it has booted already; a provider that doesn't answer is asked again."""
        if self.booted is None:
            try:
                machine = self._world.provider.describe(self.machine_id)
            except UnreachableError as err:
                self.last_seen = err.what
            else:
                self.booted = self._look_at(machine)
        return self.booted

    def _look_at(self, machine: Machine | None) -> tuple[Machine, MachineReport] | None:
        if machine is None or machine.state is MachineState.ENDING:
            self._refuse_failed_start()
        if machine is None:
            raise MachineLostError(
                f"machine {self.machine_id} was gone before it had booted",
                why=f"last seen: {self.last_seen}",
                fix=f"try again with `kedge resume {self._run_id}`",
            )
        if machine.state is not MachineState.READY or machine.address is None:
            self._refuse_lost(machine)
            self.last_seen = f"{machine.state} at {machine.provider}"
            return None
        try:
            return self._finish_boot(machine)
        except UnreachableError as err:
            self.last_seen = err.what
            return None

    def _refuse_failed_start(self) -> None:
        """Raise if its provider couldn't start it; another provider or region may."""
        end = why_ended(self._world, self.machine_id)
        if end is not None and end.by is EndedBy.START:
            raise UnfitMachineError(
                f"machine {self.machine_id} could not be started",
                why=end.says,
                fix=f"rent another one with `kedge resume {self._run_id}`",
            )

    def _refuse_lost(self, machine: Machine) -> None:
        """Raise if a machine has lost what keeps it running, such as a local one whose init was killed."""
        if not machine.may_answer:
            self._lost_since = None
            return
        self._lost_since = self._lost_since or self._world.clock.now()
        if self._world.clock.now() - self._lost_since > _LOST:
            raise UnreachableError(
                f"machine {self.machine_id} is {machine.state} at {machine.provider}, and nothing completes its boot",
                fix=f"give the run another with `kedge resume {self._run_id}`",
            )

    def _finish_boot(self, machine: Machine) -> tuple[Machine, MachineReport]:
        assert machine.address is not None  # noqa: S101 - as look has seen
        if machine.address.provisional:
            admin = self._world.connector.connect(machine.address.as_admin)
            self._require_ready(admin, machine)
            machine = _rekey(self._world, admin, machine)
        return machine, agent_client.report(self._world.connector.connect(machine.require_address()), machine)

    def _require_ready(self, remote: Remote, machine: Machine) -> None:
        """Raise unless the sentinel says that the boot has succeeded; an open port doesn't mean that."""
        seen = remote.run([*_READY, f"{machine.root}/ready"], timeout=_ASKING)
        if seen.stdout == _NOT_YET:
            self._supply(remote, machine)
            raise UnreachableError(f"machine {machine.id} answers, but is still booting")
        if seen.stdout == _GIVEN_UP:
            raise KedgeError(
                f"the boot of machine {machine.id} failed",
                why="its kedge-boot.service has failed more often than systemd restarts it",
                fix="see `kedge exec --admin -- sudo journalctl -u kedge-boot`, or end it with `kedge teardown`",
            )
        if seen.exit_code != 0 or not seen.stdout.startswith(b"{"):
            raise self._foreign_output(machine, seen)
        ready = parse_ready(seen.stdout)
        if not ready.ok:
            raise _boot_error(machine, ready)

    def _supply(self, remote: Remote, machine: Machine) -> None:
        """Send the machine its supplies, until its own answer confirms that it has them."""
        if self._supplied:
            return
        supplies = self._world.provider.supplies(machine.id, self._read_secrets(remote, machine))
        if supplies is not None:
            done = remote.run(supplies.argv, stdin=supplies.content, timeout=_SUPPLYING)
            if done.exit_code != 0 or done.stdout.split()[-1:] != [SUPPLIED.encode()]:
                raise self._foreign_output(machine, done)
        self._supplied = True

    def _read_secrets(self, remote: Remote, machine: Machine) -> dict[str, str]:
        """Read what the machine needs to start by itself; nothing if this computer starts its command.

        Raises:
            BadRequestError: a variable isn't set here, and nobody has sent the machine its supplies yet.
        """
        creation = last_creation(self._world, self._run_id, self.machine_id)
        try:
            return read_secrets(creation.awaits if creation else (), self._world.environ)
        except BadRequestError as err:
            if remote.run(["test", "-e", f"{machine.root}/supplied"], timeout=_ASKING).exit_code == 0:
                # Whatever is sent now, the machine keeps what it has.
                return {}
            raise BadRequestError(
                f"machine {self.machine_id} waits for its secrets: {err.what}",
                why="it starts its command by itself as soon as it has them, and ends if nobody sends them in time",
                fix=f"{err.fix}, and try again; or end it with `kedge teardown {self._run_id}`",
            ) from err

    def _foreign_output(self, machine: Machine, done: Completed) -> UnreachableError:
        """Make the error for output that isn't the command's; a retry in a moment may succeed.

        Some images answer every command with a text of their own while they boot, for as long as a connection lasts.
        """
        assert machine.address is not None  # noqa: S101 - as look has seen
        self._world.connector.forget(machine.address)
        return UnreachableError(f"machine {machine.id} answers, but is still booting: {_last_words(done)}")


def _boot_error(machine: Machine, ready: Readiness) -> KedgeError:
    failed = [phase for phase in ready.phases if not phase.ok]
    why = "; ".join(f"{phase.phase}: {phase.error}" for phase in failed)
    if any(phase.phase == BURN_IN for phase in failed):
        return UnfitMachineError(
            f"machine {machine.id} fails its burn-in",
            why=why,
            fix=f"rent another one with `kedge resume {machine.run_id}`",
        )
    return KedgeError(
        f"the boot of machine {machine.id} failed",
        why=why,
        fix=f"look at {machine.root}/boot.jsonl with `kedge ssh`, or end it with `kedge teardown`",
    )


def _last_words(done: Completed) -> str:
    said = (done.stderr or done.stdout).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(said) if line.strip()), f"exit code {done.exit_code}")


def _rekey(world: World, admin: Remote, machine: Machine) -> Machine:
    """Replace the first host key, which others may have read, over a connection that it has authenticated.

    The connection can break at any instant. Therefore the machine offers both keys until the laptop has seen the new
    one and has stored it. Clients accept only the pinned key, so an old key that couldn't be retired opens nothing.
    """
    assert machine.address is not None  # noqa: S101 - as look has seen
    host_key = agent_client.make_host_key(admin, machine)
    address = replace(machine.address, host_key=host_key, provisional=False)
    # The machine has shown the new key; the old one is retired over the connection that is already open.
    _connect_reloaded(world, address)
    world.provider.pin(machine.id, host_key)
    try:
        agent_client.retire_host_key(admin, machine)
    except KedgeError as err:
        _log.warning("the first host key of machine %s could not be retired: %s", machine.id, err.what)
    world.connector.forget(machine.address)
    return replace(machine, address=address)


def _connect_reloaded(world: World, address: SshAddress) -> None:
    """Connect as soon as sshd has reloaded its keys. Nothing else may ask for that meanwhile: it would begin again.

    Raises:
        UnreachableError: sshd doesn't offer the new key in time.
    """
    failures: list[UnreachableError] = []

    def connect() -> Remote | None:
        try:
            return world.connector.connect(address)
        except UnreachableError as err:
            failures.append(err)
            return None

    if world.poll_until(connect, _RELOADING, world.clock, first=_FIRST, longest=_LONGEST) is None:
        raise failures[-1]
