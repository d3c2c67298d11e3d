"""Speaks `receive-code` with the agent: a whole tree, or what changed since one that it has."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.adapters.code.entries import Manifest
from orchestrator.adapters.code.pack import pack
from orchestrator.adapters.code.tree import CodeTree
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Completed, Progress, Remote

_SENDING = timedelta(hours=2)
_NO_SUCH_BASE = 3


def deliver(remote: Remote, machine: Machine, tree: CodeTree, base: Manifest | None, progress: Progress) -> None:
    """Send a tree: what changed since the base, in one round trip, or all of it where the machine lacks the base.

    Raises:
        TreeChangedError: a file changed under our hands; the machine keeps what it had.
        KedgeError: the machine refuses it.
    """
    done = _send(remote, machine, tree, base, progress)
    if done.exit_code == _NO_SUCH_BASE and base is not None:
        done = _send(remote, machine, tree, None, progress)
    if done.exit_code != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise KedgeError(
            "the machine could not take the code",
            why=said.splitlines()[-1] if said else f"its agent exited with {done.exit_code}",
            fix="look at it with `kedge ssh`; the code that it had is still there",
        )


def _send(remote: Remote, machine: Machine, tree: CodeTree, base: Manifest | None, progress: Progress) -> Completed:
    entries = tree.manifest.changes_since(base) if base else list(tree.manifest.entries)
    total = sum(entry.size for entry in entries)
    stream = pack(tree, entries, zstd=machine.zstd, progress=lambda done: progress(done, total))
    return remote.send(_argv(machine, tree.manifest, base), stream, timeout=_SENDING)


def _argv(machine: Machine, manifest: Manifest, base: Manifest | None) -> list[str]:
    argv = [machine.agent, "receive-code", "--hash", manifest.hash]
    argv += ["--base", base.hash] if base else []
    return [*argv, "--codec", "zstd" if machine.zstd else "gzip"]
