"""Downloads the agent with the machine's own role, before there is an agent.

User-data carries only MODULES, as `kedge_agent/` in an archive, which is why they are small. Root runs
`python3 -EsS -m kedge_agent.bootstrap ROOT SHA256 USER` where it was unpacked; root owns the agent.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .s3.client import Client, S3Error, parse_s3_url
from .s3.retry import RetryBudget, retry

_Result = TypeVar("_Result")

MODULES = ("__init__", "bootstrap", "s3/__init__", "s3/client", "s3/imds", "s3/retry", "s3/sigv4")
"""The modules that work without the rest of the agent."""

ROLE_SECONDS = 300.0
"""How long a new role may take to be known everywhere; IAM documents no limit, seconds are usual."""

_AGAIN_SECONDS = 2.0
_FILE_BYTES = 16 << 20
"""Far more than any module of the agent has."""
_FAILURES = (
    *(OSError, ValueError, KeyError, EOFError, OverflowError),
    *(zlib.error, tarfile.TarError, subprocess.SubprocessError),
)


def main(argv: Sequence[str]) -> int:
    """Download, verify, unpack and install; report the outcome in boot.jsonl, and a failure in the sentinel."""
    root, sha256, user = Path(argv[0]), argv[1], argv[2]
    began = time.time()
    error = ""
    try:
        fetch_agent(root, sha256)
    except _FAILURES as err:
        error = f"{type(err).__name__}: {err}"
        sys.stderr.write(f"the agent can't be installed: {error}\n")
    _become(user)
    phase = {"phase": "agent", "began": began, "ended": time.time(), "ok": not error, "error": error}
    with (root / "boot.jsonl").open("a") as phases:
        phases.write(json.dumps(phase) + "\n")
    if error:
        (root / ".ready").write_text(json.dumps({"ok": False, "phases": [phase]}))
        (root / ".ready").replace(root / "ready")
    return int(bool(error))


def _become(user: str) -> None:
    """Drop root's rights, because the next writes go where the job can put links."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def fetch_agent(root: Path, sha256: str) -> None:
    """Download the agent if it isn't there yet, and install it.

    Raises:
        OSError: the download fails, or the disk is full.
        ValueError: its SHA-256 is wrong.
    """
    agent = root / "agent"
    sha256_file = agent / "sha256"
    if not sha256_file.exists() or sha256_file.read_text() != sha256:
        content = await_role(lambda: _download(root, sha256))
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"the agent in the store isn't {sha256}")
        # In root's own folder, because the job can make links beside it.
        incoming = root / "boot/agent.new"
        shutil.rmtree(incoming, ignore_errors=True)
        _unpack(content, incoming)
        (incoming / "sha256").write_text(sha256)
        shutil.rmtree(agent, ignore_errors=True)
        incoming.replace(agent)
    install = [sys.executable, "-EsS", "-m", "kedge_agent", "install", "--root", str(root)]
    subprocess.run(install, cwd=agent, check=True, timeout=120)


def await_role(action: Callable[[], _Result], *, seconds: float = ROLE_SECONDS) -> _Result:
    """Retry until the machine's role works at S3; an object that doesn't exist is not retried.

    Raises:
        OSError: time ran out, or S3 has no such object.
    """
    return retry(action, RetryBudget(seconds, lambda err: not _is_missing(err), first=_AGAIN_SECONDS))


def _is_missing(err: Exception) -> bool:
    return isinstance(err, FileNotFoundError) or (isinstance(err, S3Error) and err.status == 404)


def _unpack(content: bytes, folder: Path) -> None:
    """Extract an archive's regular files; refuse anything else, and paths that leave the folder."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        for member in tar:
            file = folder / member.name
            is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and 0 <= member.size <= _FILE_BYTES
            if not is_plain or member.name.startswith("/") or ".." in file.parts:
                raise ValueError(f"the agent's archive holds {member.name!r}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(tar.extractfile(member).read())  # type: ignore[union-attr]


def _download(root: Path, sha256: str) -> bytes:
    machine: dict[str, Any] = json.loads((root / "machine.json").read_text())
    place = parse_s3_url(machine["store_url"])
    client = Client(place, retry_seconds=10)
    try:
        return client.call("GET", f"{place.prefix}/{machine['run']}/agent/{sha256}.tar.gz".lstrip("/")).body
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
