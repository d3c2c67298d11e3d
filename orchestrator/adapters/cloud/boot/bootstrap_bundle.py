"""The agent as a machine receives it: its archive, the modules that fetch that, and the bundle sent over SSH.

A machine without an IAM role can't fetch the archive. It receives the bundle (the agent and secrets, unpacked by
supply.sh) over its first SSH connection.
"""

from __future__ import annotations

import ast
import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.core.errors import KedgeError
from orchestrator.core.ports import Supplies

_AGENT = Path(__file__).resolve().parents[3] / "agent"


def agent_archive() -> bytes:
    """Pack the agent's source as `kedge_agent/` into a .tar.gz: the same source gives the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in sorted(_AGENT.rglob("*.py")):
            _add(tar, f"kedge_agent/{path.relative_to(_AGENT).as_posix()}", path.read_bytes(), mode=0o644)
    return packed.getvalue()


def read_bootstrap() -> dict[str, str]:
    """Read the agent's modules that fetch the rest of it: file name -> text."""
    names = _read_names((_AGENT / "bootstrap.py").read_text())
    return {f"{name}.py": (_AGENT / f"{name}.py").read_text() for name in names}


def pack_bootstrap_bundle(
    root: str, agent: bytes, *, for_user: Mapping[str, str] | None = None, for_root: Mapping[str, str] | None = None
) -> Supplies:
    """Pack the bundle.

    Args:
        root: the machine's folder.
        agent: its archive, a .tar.gz.
        for_user: the agent's secrets, file name -> text; placed in `<root>/private`, readable by the job's user only.
        for_root: secrets, file name -> text; placed in `cloud_config.STATE`, readable by root only.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        _add(tar, "agent.tar.gz", agent)
        for folder, secrets in (("user", for_user), ("root", for_root)):
            for name, text in (secrets or {}).items():
                _add(tar, f"{folder}/{name}", text.encode())
        # Written last, so that a truncated stream lacks it.
        _add(tar, "complete", b"")
    return Supplies(argv=("sudo", "-n", "sh", f"{root}/boot/supply.sh"), content=packed.getvalue())


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o600) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = mode
    tar.addfile(member, io.BytesIO(content))


def _read_names(source: str) -> tuple[str, ...]:
    """Read the list in the agent's source: the agent stands alone and is never imported here."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MODULES":
            return tuple(ast.literal_eval(statement.value))
    raise KedgeError(
        "kedge's own agent can't be read", why="its bootstrap.py names no MODULES", fix="install kedge again"
    )
