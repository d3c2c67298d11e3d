"""`rekey`: give the machine an SSH host key that nobody else has ever seen.

The one that it was born with lay in its user-data. The new public key is printed before it takes effect, so that a
caller whose connection breaks off knows both; exit code 0 says that it has.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .calling import call, rights_over
from .errors import AgentError
from .layout import Layout

_FILE = Path("/etc/ssh/ssh_host_ed25519_key")
# Debian's and Ubuntu's name of the unit, then everybody else's.
_RELOADS = (("systemctl", "reload", "ssh"), ("systemctl", "reload", "sshd"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the key's place, and what makes sshd take notice of it."""
    parser.add_argument("--file", type=Path, default=_FILE, help="the private key's file")
    parser.add_argument("--reload", type=shlex.split, help="a command; systemd is asked where there is none")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Make a key, print its public half, put it in place and reload sshd.

    Raises:
        AgentError: one of these failed; until the key is in place the old one holds.
    """
    with tempfile.TemporaryDirectory(prefix=".rekey-", dir=layout.root) as folder:
        key = Path(folder) / "key"
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)])
        public = Path(f"{key}.pub")
        sys.stdout.write(public.read_text().strip() + "\n")
        sys.stdout.flush()
        _replace(public, Path(f"{args.file}.pub"), "644")
        _replace(key, args.file, "600")
    _reload([args.reload] if args.reload else _RELOADS)
    return 0


def _replace(source: Path, target: Path, mode: str) -> None:
    """Copy with root's rights and in one step: sshd reads it anew for every connection."""
    aside = f"{target}.new"
    prefix = rights_over(target.parent)
    call([*prefix, "install", "-m", mode, str(source), aside])
    call([*prefix, "mv", "-fT", aside, str(target)])


def _reload(commands: Sequence[Sequence[str]]) -> None:
    for command in commands[:-1]:
        try:
            call([*rights_over(_FILE.parent), *command])
        except AgentError:
            continue
        return
    call([*rights_over(_FILE.parent), *commands[-1]])
