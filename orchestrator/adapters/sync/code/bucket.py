"""Sends code through the bucket: one object for each content, which machines download themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from orchestrator.adapters.sync.code.source import GitCodeSource
from orchestrator.core.errors import agent_error
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Clock, Completed, Remote
from orchestrator.core.transfers import Progress, Stage, StagedCode

_PULLING = timedelta(minutes=30)


class BucketCodeSource(GitCodeSource):
    """Implements `core.ports.CodeSource`: only the content's hash and the archive's SHA-256 go over SSH."""

    def __init__(
        self,
        workdir: Path | None,
        *,
        state: Path,
        clock: Clock,
        stage: Stage,
        extras: Mapping[str, Path] | None = None,
    ) -> None:
        """Set the parts of the tree, as for `GitCodeSource`, and the stage from which machines download it."""
        super().__init__(workdir, state=state, clock=clock, extras=extras)
        self._stage = stage

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> str:
        """Bring the machine's code to this state, and return the content hash.

        If the code is unchanged since the last call, one request confirms that the machine has it, and the bucket isn't
        contacted.

        Raises:
            BadRequestError: the tree has something that can't be sent.
            UnreachableError: the connection broke; the machine has the old tree or the new one.
            KedgeError: the bucket can't be used, or the machine can't download the code from it.
        """
        manifest = self._read().manifest
        if self._sent.hash(machine.id) == manifest.hash and _has(remote, machine, manifest.hash):
            return manifest.hash
        staged = self._stage.put_code(machine.run_id, self, progress)
        done = _pull(remote, machine, staged)
        if done.exit_code != 0:
            raise agent_error("the machine could not take the code from the bucket", done.exit_code, done.stderr)
        if staged.hash == manifest.hash:
            self._sent.remember(machine.id, manifest)
        return staged.hash


def _has(remote: Remote, machine: Machine, content_hash: str) -> bool:
    """Ask whether the machine has the code; without an archive's SHA-256, it downloads nothing."""
    return remote.run([machine.agent, "pull-code", content_hash], timeout=_PULLING).exit_code == 0


def _pull(remote: Remote, machine: Machine, staged: StagedCode) -> Completed:
    argv = [machine.agent, "pull-code", "--sha256", staged.sha256, staged.hash]
    return remote.run(argv, timeout=_PULLING)
