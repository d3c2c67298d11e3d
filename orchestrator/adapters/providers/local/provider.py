"""The provider `local`: machines on this computer, which cost nothing and still have a deadline."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from orchestrator.adapters.host.child_environment import lasting_environment
from orchestrator.adapters.host.claims import claim
from orchestrator.adapters.host.files import open_to_write
from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.providers import Backing, Context
from orchestrator.adapters.providers.local.ending import clear_machine, end_local_machine, remove_tree
from orchestrator.adapters.providers.local.folder import ENDED_FOLDER, Facts, MachineFolder, module_argv
from orchestrator.adapters.providers.local.hardware import read_computer
from orchestrator.adapters.providers.local.layout import lay_out, package_folder, sockets_folder
from orchestrator.adapters.providers.local.machine_mapping import map_folder
from orchestrator.adapters.providers.local.moving import move_deadline
from orchestrator.adapters.providers.local.offers import NAME, gpu_count, plan_offers, refuse_unknown
from orchestrator.adapters.providers.local.processes import find_markers, lineage
from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine, MachineEnd, MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.ports import Clock, Supplies
from orchestrator.core.sweep import Sweep

_BOOT = timedelta(seconds=60)
_CLAIM = timedelta(seconds=60)
_ASKED_END = timedelta(seconds=30)
_POLL = timedelta(milliseconds=10)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def make(context: Context) -> Backing:
    """Make the provider for the registry; its store is a folder."""
    provider = LocalProvider(
        state_dir=context.state_dir,
        runtime_dir=context.runtime_dir,
        clock=context.clock,
        key_file=context.key_file,
        environ=context.environ,
    )
    return Backing(provider=provider, store=Results(FolderBucket(context.state_dir / "store")), stage=None)


_NO_PRICE = "none, this computer is yours"


class LocalProvider:
    """Implements `Provider` on this computer. A machine's folder is `<state_dir>/machines/<id>`."""

    name = NAME
    can_start_at_boot = False
    caveats: tuple[str, ...] = ()
    ends_by_itself = True
    offers_basis = _NO_PRICE

    def __init__(
        self,
        *,
        state_dir: Path,
        runtime_dir: Path,
        clock: Clock,
        key_file: Path,
        environ: Mapping[str, str] = MappingProxyType({}),
        python: str = sys.executable,
    ) -> None:
        """Make a provider; machines get the variables of `environ` that aren't secret."""
        self._machines = state_dir.resolve() / "machines"
        self._ended = self._machines.with_name(ENDED_FOLDER)
        self._claims = self._machines.with_name("claims")
        self._runtime_dir = runtime_dir.resolve()
        self._clock = clock
        self._key_file = key_file
        self._environ = lasting_environment(environ)
        self._python = python

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """Return this computer as the one offer; nothing if it doesn't fit.

        Raises:
            BadRequestError: the job requires what only a cloud can fulfil.
        """
        refuse_unknown(resources)
        self.offers_basis = _NO_PRICE if resources.usd_per_hour is None else "yours (--price), a rehearsal"
        return plan_offers(read_computer(self._machines), resources)

    def refresh_offers(self) -> str:
        """Refuse: there is no snapshot, since this computer is read each time.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError("the local provider has no snapshot of prices", fix="choose a cloud with --provider")

    def machines(self) -> Sequence[Machine]:
        """List every machine that has a folder or living processes."""
        folders = self._machines.iterdir() if self._machines.is_dir() else ()
        named = {path.name for path in folders if _ID.fullmatch(path.name)}
        markers = find_markers().values()
        marked = {marker.machine for marker in markers if marker.root == str(self._machines / marker.machine)}
        found = (self.describe(machine_id) for machine_id in sorted(named | marked))
        return [machine for machine in found if machine is not None]

    def sweep(self) -> Sweep:
        """Return the same: a run has nothing here besides machines."""
        return Sweep(machines=tuple(self.machines()))

    def create(self, order: MachineOrder) -> Machine:
        """Start the machine and wait until it is ready; an existing one with the id is returned as it is.

        A half created machine of an earlier call is removed and created again.

        Raises:
            KedgeError: it doesn't boot; nothing of it is left.
            ConflictError: another process has been creating it for too long.
        """
        folder = self._folder(order.id)
        with claim(self._claims, order.id, self._clock, within=_CLAIM):
            if folder.read("ready") is None and folder.init() is None:
                self._remove_ended()
                self._start(folder, order)
            self._await_boot(folder)
        machine = self.describe(order.id)
        if machine is None:
            raise KedgeError(f"machine {order.id} ended while it was being created")
        return machine

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None if neither its folder nor a process is left."""
        return map_folder(self._folder(machine_id), self._key_file, self._clock.now())

    def destroy(self, machine_id: str) -> None:
        """End every process of the machine and remove its folder; once this returns, the machine is gone.

        The folder that its command ran in is moved, and kept until the next machine is created.

        The calling process and its ancestors are spared: they may run on the machine itself.

        Raises:
            KedgeError: some of it can't be ended or removed.
        """
        folder = self._folder(machine_id)
        spare = lineage()
        self._ask_init(folder, spare)
        left = end_local_machine(folder, self._sockets(folder), self._pause, spare)
        if left or folder.root.exists():
            pids = ", ".join(str(process.pid) for process in left)
            raise KedgeError(
                f"machine {machine_id} can't be ended",
                why=f"these processes don't end: {pids}" if left else f"{folder.root} can't be removed",
                fix="end or remove them as the user that they belong to, then run `kedge teardown` again",
            )

    def why_ended(self, machine_id: str) -> MachineEnd | None:  # noqa: ARG002 - the port's name
        """Return None: nothing of a local machine outlives it."""
        return None

    def supplies(self, machine_id: str, secrets: Mapping[str, str]) -> Supplies | None:  # noqa: ARG002 - the port's names
        """Return None: a local machine has its agent from the start."""
        return None

    def pin(self, machine_id: str, host_key: str) -> None:
        """Do nothing: no host key of a local machine is provisional."""

    def guard(self, machine_id: str) -> None:
        """Do nothing: a local machine's init ends it, and `create` starts that first."""

    def move_deadline(self, machine_id: str, deadline_at: datetime) -> Sequence[str]:
        """Move the deadline of the machine's init, and wait until it has armed that.

        Raises:
            KedgeError: there is no such machine, or its init is dead.
        """
        move_deadline(self._folder(machine_id), deadline_at, self._clock)
        return ()

    def reopen(self, machine_id: str, ssh_from: str) -> bool:  # noqa: ARG002 - the same for each
        """Do nothing: a local machine listens on the loopback address only."""
        return False

    def delete_volume(self, volume_id: str, region: str) -> None:  # noqa: ARG002 - there is none
        """Refuse: a local machine has no data volumes."""
        raise BadRequestError(f"there is no data volume {volume_id}", why="a local machine has none")

    def release(self, run_id: str) -> Sequence[str]:
        """Remove nothing: a run only has its machines' folders. Return a line for each working folder that is kept."""
        found = sorted(self._ended.glob(f"{run_id}-m*")) if _ID.fullmatch(run_id) else []
        return tuple(f"kept until the next local launch: the folder that the command ran in, {path}" for path in found)

    def _folder(self, machine_id: str) -> MachineFolder:
        if not _ID.fullmatch(machine_id):
            raise BadRequestError(
                f"{machine_id!r} is not the id of a machine", fix="take one that `kedge status` shows"
            )
        return MachineFolder(self._machines / machine_id)

    def _sockets(self, folder: MachineFolder) -> Path:
        return sockets_folder(self._runtime_dir, folder.root)

    def _remove_ended(self) -> None:
        """Remove the working folders of ended machines."""
        for path in self._ended.iterdir() if self._ended.is_dir() else ():
            remove_tree(path)

    def _start(self, folder: MachineFolder, order: MachineOrder) -> None:
        """Create the machine's folder and start it, in place of what a crashed creation may have left."""
        clear_machine(folder, self._sockets(folder), self._pause, lineage())
        folder.ending_file.unlink(missing_ok=True)
        facts = self._facts(folder, order)
        try:
            lay_out(folder, facts, order)
            self._start_init(folder, facts)
        except KedgeError:
            self.destroy(folder.id)
            raise
        except (OSError, subprocess.TimeoutExpired) as err:
            self.destroy(folder.id)
            raise KedgeError(
                f"machine {folder.id} can't be laid out",
                why=str(err),
                fix=f"free some space and check the permissions of {self._machines}",
            ) from err

    def _facts(self, folder: MachineFolder, order: MachineOrder) -> Facts:
        return Facts(
            run_id=order.run_id,
            created=self._clock.now().timestamp(),
            lifetime=order.lifetime_seconds,
            usd_per_hour=str(order.usd_per_hour),
            gpus=gpu_count(order.instance_type),
            zstd=shutil.which("zstd") is not None,
            sockets=str(self._sockets(folder)),
            python=self._python,
            package=package_folder(),
            rank=order.rank,
        )

    def _start_init(self, folder: MachineFolder, facts: Facts) -> None:
        """Start the daemon; wait only for its first process, which forks it and exits."""
        with open_to_write(folder.log, append=True) as log:
            starter = subprocess.Popen(
                module_argv(facts, folder, "init"),
                cwd=folder.root,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        starter.wait(_BOOT.total_seconds())

    def _await_boot(self, folder: MachineFolder) -> None:
        def is_settled() -> bool:
            said = folder.read("ready") or folder.read("failed")
            return said is not None or folder.init() is None

        in_time = poll_until(is_settled, _BOOT, self._clock, first=_POLL, longest=_POLL)
        if folder.read("ready") is not None:
            return
        failed = folder.read("failed") or {
            "what": f"machine {folder.id} does not boot",
            "why": folder.tail(folder.log) or ("it ended" if in_time else "it took longer than a minute"),
        }
        self.destroy(folder.id)
        raise KedgeError(**failed)

    def _ask_init(self, folder: MachineFolder, spare: set[int]) -> None:
        """Ask init to end the machine, unless this process runs on the machine."""
        init = folder.init()
        if init is None or init.pid in spare:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(init.pid, signal.SIGTERM)
        poll_until(lambda: not init.is_alive, _ASKED_END, self._clock, first=_POLL, longest=_POLL)

    def _pause(self, seconds: float) -> None:
        self._clock.sleep(timedelta(seconds=seconds))
