"""The agent as a small archive, the same bytes for the same source."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

_SOURCE = Path(__file__).resolve().parent.parent / "agent"


def agent_archive() -> bytes:
    """Pack the agent's source as `kedge_agent/` into a .tar.gz."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in sorted(_SOURCE.rglob("*.py")):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"kedge_agent/{path.relative_to(_SOURCE).as_posix()}")
            member.size = len(content)
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()
