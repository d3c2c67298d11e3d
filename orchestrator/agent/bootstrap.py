"""Fetch the agent with the machine's own role, before there is an agent.

User-data carries MODULES alone, as `kedge_agent/` in an archive, which is why they are small; root runs, where it
was unpacked, `python3 -EsS -m kedge_agent.bootstrap ROOT SHA256 USER`: the agent is root's, and the job's user runs it.
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

from .s3client import Client, S3Error, parse_place

_Result = TypeVar("_Result")

MODULES = ("__init__", "bootstrap", "imds", "s3client", "sigv4")
"""What works with nothing else of the agent beside it."""

ROLE_SECONDS = 300.0
"""How long a new role may take to be known everywhere; IAM names no bound, seconds are usual."""

_AGAIN_SECONDS = 2.0
_FILE_BYTES = 16 << 20
"""Of a module of the agent's, by far."""
_FAILURES = (
    *(OSError, ValueError, KeyError, EOFError, OverflowError),
    *(zlib.error, tarfile.TarError, subprocess.SubprocessError),
)


def main(argv: Sequence[str]) -> int:
    """Fetch, verify, unpack and install; say in boot.jsonl, and on failure in the sentinel, how it went."""
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
    """Leave root's rights behind: what is written next lies where the job can put links."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def fetch_agent(root: Path, sha256: str) -> None:
    """Put the agent in place and install it; one that is there already is only installed.

    Raises:
        OSError: it can't be had, or the disk is full.
        ValueError: what came isn't what was asked for.
    """
    agent = root / "agent"
    mark = agent / "sha256"
    if not mark.exists() or mark.read_text() != sha256:
        content = await_role(lambda: _download(root, sha256))
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"the agent in the store isn't {sha256}")
        # A folder of root's: beside it the job can make links.
        incoming = root / "boot/agent.new"
        shutil.rmtree(incoming, ignore_errors=True)
        _unpack(content, incoming)
        (incoming / "sha256").write_text(sha256)
        shutil.rmtree(agent, ignore_errors=True)
        incoming.replace(agent)
    install = [sys.executable, "-EsS", "-m", "kedge_agent", "install", "--root", str(root)]
    subprocess.run(install, cwd=agent, check=True, timeout=120)


def await_role(action: Callable[[], _Result], *, seconds: float = ROLE_SECONDS) -> _Result:
    """Try until the machine's role has reached it, and S3; what isn't there, isn't there, and is no reason to wait.

    Raises:
        OSError: time ran out, or S3 has no such object.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            return action()
        except OSError as err:
            is_missing = isinstance(err, FileNotFoundError) or (isinstance(err, S3Error) and err.status == 404)
            if is_missing or time.monotonic() + _AGAIN_SECONDS > give_up:
                raise
        time.sleep(_AGAIN_SECONDS)


def _unpack(content: bytes, folder: Path) -> None:
    """Write an archive's plain files; it holds nothing else, and none that leaves the folder."""
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
    place = parse_place(machine["store_url"])
    client = Client(place, patience=10)
    try:
        return client.call("GET", f"{place.prefix}/{machine['run']}/agent/{sha256}.tar.gz".lstrip("/")).body
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
