"""Searches what a life has left: the laptop's folders, and all files that a box's machine has written."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.sweep.secrets import Secrets

Found = dict[tuple[str, str], str]
"""Maps (secret, place) to an example file."""

_NOT_FILES = frozenset({"proc", "sysfs", "cgroup2", "devpts", "mqueue", "devtmpfs", "bpf", "securityfs", "nsfs"})


def search_folder(secrets: Secrets, folder: Path, name: Callable[[str], str]) -> Found:
    """Search all files below a folder: their content, their names, where links lead.

    Args:
        secrets: the secrets to find.
        folder: the folder to search, without file systems that are mounted below it.
        name: turns a path relative to the folder into a place in `table`.
    """
    found: Found = {}
    for path in _walk(folder):
        relative = str(path.relative_to(folder))
        for secret in secrets.find(relative.encode(errors="replace")) | secrets.find(_content(path)):
            found.setdefault((secret, name(relative)), str(path))
    return found


def search_machine(secrets: Secrets, machine: str) -> Found:
    """Search what a running machine of a box has written: on its disk, on its volumes, in memory.

    Args:
        secrets: the secrets to find.
        machine: the box's name for it.
    """
    keeper, init = _processes_of(machine)
    folder = keeper.cmdline()[-1]
    found = search_folder(secrets, Path(f"/proc/{keeper.pid}/root{folder}/upper"), _in_machine)
    for mount in _mounts(init.pid):
        at = Path(f"/proc/{init.pid}/root{mount}")
        found |= search_folder(secrets, at, lambda path, mount=mount: _in_machine(f"{mount.lstrip('/')}/{path}"))  # type: ignore[misc]
    return found


def read_file(machine: str, path: str) -> bytes:
    """Read a file of a running machine, as root."""
    return Path(f"/proc/{init_of(machine)}/root{path}").read_bytes()


def init_of(machine: str) -> int:
    """Return the process id of a running machine's init.

    Raises:
        LookupError: no such machine is running.
    """
    _keeper, init = _processes_of(machine)
    return init.pid


def _in_machine(path: str) -> str:
    return f"machine /{path}"


def _walk(folder: Path) -> Iterator[Path]:
    device = _device(folder, follows=True)
    for above, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if _device(Path(above) / each) == device]
        yield from (Path(above) / each for each in (*folders, *files))


def _device(folder: Path, *, follows: bool = False) -> int | None:
    """Return the file system's device; None if it was unmounted meanwhile, as a logged-out user's runtime folder is."""
    try:
        return folder.stat(follow_symlinks=follows).st_dev
    except FileNotFoundError:
        return None


def _content(path: Path) -> bytes:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return str(path.readlink()).encode(errors="replace")
        if not stat.S_ISREG(mode):
            return b""
        if path.suffix == ".journal":
            # journald compresses long fields.
            argv = ["journalctl", f"--file={path}", "--output=export", "--all"]
            return path.read_bytes() + subprocess.run(argv, capture_output=True, check=False).stdout
        return path.read_bytes()
    except OSError:
        # Files that are being written may disappear.
        return b""


def _processes_of(machine: str) -> tuple[psutil.Process, psutil.Process]:
    """Return the process that keeps a machine, and the machine's init."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if (
            "tests.cloudbox.nspawn.keeper" not in words
            or not words[-1].endswith(f"/{machine}")
            or "unshare" in words[0]
        ):
            continue
        if init := next((each for each in process.children(recursive=True) if _name_of(each) == "systemd"), None):
            return process, init
    raise LookupError(f"no machine {machine} is running")


def _name_of(process: psutil.Process) -> str:
    """Return a process's name; empty if it has just ended, as some do while a machine boots."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _mounts(pid: int) -> Iterator[str]:
    """Return where a process has writable file systems mounted, except its root."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        target, options = before.split()[4:6]
        is_writable = "ro" not in options.split(",")
        if target != "/" and is_writable and after.split()[0] not in _NOT_FILES | {"overlay"}:
            yield re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), target)


def search_bucket(secrets: Secrets, s3: Any, bucket: str) -> Found:
    """Search every object of a bucket: its content, its name and its metadata."""
    found: Found = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", ()):
            key = entry["Key"]
            answer = s3.get_object(Bucket=bucket, Key=key)
            said = f"{key} {answer['Metadata']}".encode()
            for secret in secrets.find(said) | secrets.find(answer["Body"].read()):
                found.setdefault((secret, f"bucket {key}"), key)
    return found
