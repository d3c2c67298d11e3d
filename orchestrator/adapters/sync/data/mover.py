"""Sends data through the bucket: the laptop uploads it once, and machines mirror it from there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.ssh.session import DEFAULT_TIMEOUT
from orchestrator.core.errors import UnreachableError, agent_error

if TYPE_CHECKING:
    from orchestrator.core.job import DataMount
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Connector
    from orchestrator.core.protocol.results import ResultFile
    from orchestrator.core.protocol.tree import Arrival
    from orchestrator.core.transfers import DataMover, DataStage, Progress

_PULLING = timedelta(hours=6)


class BucketMover:
    """Implements `core.ports.DataMover`; fetches use the direct mover."""

    def __init__(self, stage: DataStage, connector: Connector, direct: DataMover) -> None:
        self._stage = stage
        self._connector = connector
        self._direct = direct
        self._staging = threading.Lock()

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        """Bring the bucket and then the machine's `<root>/data/<target>` to the state of the mount's source.

        Raises:
            BadRequestError: the source doesn't exist, or something in it can't be sent.
            UnreachableError: the connection broke; a repeated call resumes.
            KedgeError: the bucket can't be used, or the machine can't mirror the data from it.
        """
        # For several machines at once, the first one uploads for all.
        with self._staging:
            staged = self._stage.put_data(mount, progress, delete=delete)
        if machine.address is None:
            raise UnreachableError(
                f"{machine.id} has no address yet", why=f"it is {machine.state}", fix="try again when it is ready"
            )
        argv = [machine.agent, "pull-data", "--index", staged.index, staged.name, mount.target]
        done = self._connector.connect(machine.address).run(argv, timeout=_PULLING)
        if done.exit_code != 0:
            raise agent_error("the machine could not take the data from the bucket", done.exit_code, done.stderr)

    def fetch(
        self,
        machine: Machine,
        folder: str,
        destination: str,
        progress: Progress,
        *,
        files: Sequence[ResultFile] = (),
        only: bool = False,
        within: timedelta = DEFAULT_TIMEOUT,
    ) -> Arrival:
        """Copy a folder from the machine to the laptop."""
        return self._direct.fetch(machine, folder, destination, progress, files=files, only=only, within=within)
