"""Speaks `receive-code` with the agent: a whole tree, or what changed since one that it has."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Self

from orchestrator.adapters.code.ahead import Ahead
from orchestrator.adapters.code.entries import Manifest
from orchestrator.adapters.code.pack import pack
from orchestrator.adapters.code.tree import CodeTree
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Progress, Remote
from orchestrator.core.report import agent_error

_SENDING = timedelta(hours=2)
_NO_SUCH_BASE = 3


class Delivery:
    """A tree on its way to a machine: what changed since a base, or all of it. It is packed from here on."""

    def __init__(self, machine: Machine, tree: CodeTree, base: Manifest | None) -> None:
        self._machine = machine
        self._tree = tree
        self._base = base
        entries = tree.manifest.changes_since(base) if base else list(tree.manifest.entries)
        self._total = sum(entry.size for entry in entries)
        self._packing = Ahead(pack(tree, entries, zstd=machine.zstd))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._packing.drop()

    def send(self, remote: Remote, progress: Progress) -> None:
        """Send it, in one round trip, and all of it should the machine lack the base.

        Raises:
            TreeChangedError: a file changed under our hands; the machine keeps what it had.
            KedgeError: the machine refuses it.
        """
        stream = self._packing.read(lambda reached: progress(reached, self._total))
        done = remote.send(self._argv(), stream, timeout=_SENDING)
        if done.exit_code == _NO_SUCH_BASE and self._base is not None:
            with Delivery(self._machine, self._tree, None) as whole:
                whole.send(remote, progress)
        elif done.exit_code != 0:
            raise agent_error("the machine could not take the code", done.exit_code, done.stderr)

    def _argv(self) -> list[str]:
        argv = [self._machine.agent, "receive-code", "--hash", self._tree.manifest.hash]
        argv += ["--base", self._base.hash] if self._base else []
        return [*argv, "--codec", "zstd" if self._machine.zstd else "gzip"]
