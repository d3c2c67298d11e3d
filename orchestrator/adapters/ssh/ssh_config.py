"""Writes the include file that makes plain `ssh <run>` work, and the line that includes it."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.host.templates import render
from orchestrator.adapters.ssh.options import openssh_options, quoted
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.machine import SshAddress


def write_ssh_config(path: Path, hosts: Mapping[str, SshAddress], ssh_files: SshFiles) -> None:
    """Write the include file: a Host block for each alias, with its pinned key and its control socket."""
    for address in hosts.values():
        ssh_files.pin(address)
    blocks = [{"alias": alias, "options": openssh_options(ssh_files, address)} for alias, address in hosts.items()]
    write_atomically(path, render("ssh-config.j2", hosts=blocks).encode())


def install_include(user_config: Path, include: Path) -> bool:
    """Include a file at the top of the user's SSH configuration; return False if it is included already.

    It must be at the top: further down, the line would belong to the Host block above it.
    """
    if is_included(user_config, include):
        return False
    # Dotfiles are often links into a repository, so the link's target is changed.
    target = user_config.resolve()
    before, mode = b"", 0o600
    if target.exists():
        before, mode = target.read_bytes(), stat.S_IMODE(target.stat().st_mode)
    line = f"Include {quoted(str(include)).replace('%%', '%')}\n\n".encode()
    write_atomically(target, line + before, mode=mode)
    return True


def is_included(user_config: Path, include: Path) -> bool:
    """Tell whether the user's SSH configuration includes a file for every host."""
    try:
        text = user_config.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return False
    return any(_names(user_config, value) == include for value in _includes(text))


def _includes(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = _words(line)
        if words and words[0].lower() in {"host", "match"}:
            return
        if words and words[0].lower() == "include":
            yield from words[1:]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


def _names(user_config: Path, value: str) -> Path:
    # ssh_config(5): a relative path starts in the folder of the user's configuration.
    return user_config.parent / Path(value).expanduser()
