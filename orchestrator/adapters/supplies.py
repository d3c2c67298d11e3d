"""What a machine without a role is brought over its first connection, as supply.sh takes it: agent and secrets."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

from orchestrator.core.ports import Supplies


def pack_supplies(
    root: str, agent: bytes, *, for_user: Mapping[str, str] | None = None, for_root: Mapping[str, str] | None = None
) -> Supplies:
    """Pack what a machine is brought.

    Args:
        root: the machine's folder.
        agent: its archive, a .tar.gz.
        for_user: secrets by file name, which come to lie in `<root>/private`, for the job's user alone: the agent's.
        for_root: secrets by file name, which come to lie in `adapters.boot.STATE`, for root alone.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        _add(tar, "agent.tar.gz", agent)
        for folder, secrets in (("user", for_user), ("root", for_root)):
            for name, text in (secrets or {}).items():
                _add(tar, f"{folder}/{name}", text.encode())
        # Last: a stream that broke off doesn't have it.
        _add(tar, "complete", b"")
    return Supplies(argv=("sudo", "-n", "sh", f"{root}/boot/supply.sh"), content=packed.getvalue())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o600
    tar.addfile(member, io.BytesIO(content))
