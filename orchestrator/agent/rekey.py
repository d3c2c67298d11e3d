"""`rekey`: give the machine an SSH host key that nobody else has ever seen, beside the one that it was born with.

That one lay in its user-data, and is of another kind: sshd shows both, and each client the one that it asks for. So
the caller may be cut off at any instant, before it has seen the new key or after. `rekey --retire`, once the caller
has pinned the new one, takes the old one away. Both may be repeated.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .calling import call, rights_over
from .errors import AgentError, RequestError
from .layout import Layout

_FOLDER = Path("/etc/ssh")
_OWN = "ssh_host_ed25519_key"
_BORN_WITH = "ssh_host_ecdsa_key"
# Debian's and Ubuntu's name of the unit, then everybody else's.
_RELOADS = (("systemctl", "reload", "ssh"), ("systemctl", "reload", "sshd"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to do, where the keys lie, and what makes sshd take notice of them."""
    parser.add_argument("--retire", action="store_true", help="take away the key that the machine was born with")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where sshd's keys lie")
    parser.add_argument("--reload", type=shlex.split, help="a command; systemd is asked where there is none")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Make the key, unless it is there, and print its public half once sshd shows it; or retire the other.

    Raises:
        RequestError: the only key is to be retired.
        AgentError: one of these failed; the keys that sshd shows stay as they were.
    """
    own = args.folder / _OWN
    reloads = [args.reload] if args.reload else _RELOADS
    if args.retire:
        _retire(own, args.folder / _BORN_WITH)
        _reload(reloads)
        return 0
    # cloud-init deletes the keys of the image: one that is there was made on this machine.
    if not own.exists():
        _make(layout, own)
    _reload(reloads)
    sys.stdout.write(_public_half(own) + "\n")
    return 0


def _make(layout: Layout, own: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".rekey-", dir=layout.root) as folder:
        key = Path(folder) / "key"
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)])
        # The private half last: where it is, both are.
        _install(Path(f"{key}.pub"), Path(f"{own}.pub"), "644")
        _install(key, own, "600")


def _install(source: Path, target: Path, mode: str) -> None:
    """Copy with root's rights and in one step: sshd reads it anew for every connection."""
    aside = f"{target}.new"
    prefix = rights_over(target.parent)
    call([*prefix, "install", "-m", mode, str(source), aside])
    call([*prefix, "mv", "-fT", aside, str(target)])


def _public_half(own: Path) -> str:
    try:
        return Path(f"{own}.pub").read_text().strip()
    except OSError as err:
        raise AgentError("the host key's public half can't be read", why=str(err)) from err


def _retire(own: Path, born_with: Path) -> None:
    if not own.exists():
        raise RequestError("this machine has no host key of its own yet", fix="make one with `kedge-agent rekey`")
    call([*rights_over(own.parent), "rm", "-f", str(born_with), f"{born_with}.pub"])


def _reload(commands: Sequence[Sequence[str]]) -> None:
    for command in commands[:-1]:
        try:
            call([*rights_over(_FOLDER), *command])
        except AgentError:
            continue
        return
    call([*rights_over(_FOLDER), *commands[-1]])
