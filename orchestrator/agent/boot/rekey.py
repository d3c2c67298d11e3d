"""`rekey`: makes a new SSH host key on the machine, in addition to the initial one from its user-data.

The new key is of another type: sshd offers both, and each client gets the type that it asks for. So the connection may
break at any time, before the caller has seen the new key or after. Once the caller has pinned the new key,
`rekey --retire` removes the initial one. Both commands may be repeated.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..base.calling import call, rights_over
from ..base.errors import AgentError, RequestError
from ..base.layout import Layout

_FOLDER = Path("/etc/ssh")
_OWN = "ssh_host_ed25519_key"
_BORN_WITH = "ssh_host_ecdsa_key"
# The unit's name on Debian and Ubuntu, then elsewhere.
_RELOADS = (("systemctl", "reload", "ssh"), ("systemctl", "reload", "sshd"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--retire", action="store_true", help="remove the machine's initial key")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="the folder of sshd's keys")
    parser.add_argument("--reload", type=shlex.split, help="the command that reloads sshd (default: systemctl)")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Make the key if there is none, and print its public half once sshd offers it; or retire the initial key.

    Raises:
        RequestError: the initial key is the only one and can't be retired.
        AgentError: something failed; sshd offers the same keys as before.
    """
    own = args.folder / _OWN
    reloads = [args.reload] if args.reload else _RELOADS
    if args.retire:
        _retire(own, args.folder / _BORN_WITH)
        _reload(reloads)
        return 0
    # cloud-init deletes the image's keys: an existing key was made on this machine.
    if not own.exists():
        _make(layout, own)
    _reload(reloads)
    sys.stdout.write(_public_half(own) + "\n")
    return 0


def _make(layout: Layout, own: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".rekey-", dir=layout.root) as folder:
        key = Path(folder) / "key"
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)])
        # The private half comes last: if it exists, both do.
        _install(Path(f"{key}.pub"), Path(f"{own}.pub"), "644")
        _install(key, own, "600")


def _install(source: Path, target: Path, mode: str) -> None:
    """Copy with root's rights and atomically, because sshd reads the key for every connection."""
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
