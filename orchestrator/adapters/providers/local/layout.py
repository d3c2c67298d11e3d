"""Creates a local machine's folder before it boots, the facts first."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pwd
import tarfile
from pathlib import Path

import msgspec

import orchestrator
from orchestrator.adapters.host.files import make_folder, write_atomically
from orchestrator.adapters.host.private import make_private_folder, short_folder
from orchestrator.adapters.host.templates import render
from orchestrator.adapters.providers.local.folder import Facts, MachineFolder, module_argv
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineOrder
from orchestrator.core.protocol.wire import MachineConfig

_LONGEST_SOCKETS = 70  # a socket's path may have 103 (macOS) or 107 bytes: this leaves 33 for the socket's name
_SHIP_SECONDS = 10.0  # a copy within this computer is cheap, so a lost machine loses little
_SHADOW = Path("/etc/shadow")


def package_folder() -> str:
    """Return the folder that `orchestrator` is imported from."""
    return str(Path(str(orchestrator.__file__)).resolve().parent.parent)


def user_name() -> str:
    """Return the user that machines run as."""
    return pwd.getpwuid(os.getuid()).pw_name


def sockets_folder(runtime_dir: Path, root: Path) -> Path:
    """Return the path of a machine's folder for sockets: short, and always the same for one machine."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return short_folder(runtime_dir / name, _LONGEST_SOCKETS)


def lay_out(folder: MachineFolder, facts: Facts, order: MachineOrder) -> None:
    """Write everything that init needs.

    Raises:
        KedgeError: the folder for sockets belongs to somebody else, or the agent's archive is damaged.
    """
    folder.write_facts(facts)
    make_private_folder(Path(facts.sockets))
    write_atomically(folder.root / "authorized_keys", f"{order.authorized_key.strip()}\n".encode())
    write_atomically(folder.sshd_config, os.fsencode(_render_sshd_config(folder)))
    make_folder(folder.root / "bin")
    config = _machine_config(folder, facts, order.store_url)
    write_atomically(folder.root / "machine.json", msgspec.json.encode(config))
    _unpack(order.agent_archive, folder.root / "agent")


def _render_sshd_config(folder: MachineFolder) -> str:
    path = os.pathsep.join([str(folder.root / "bin"), *os.get_exec_path()])
    # With SHLVL=1, bash doesn't count as a first shell and skips the user's ~/.bashrc, which may print, wait, and
    # put other folders first in PATH. Interactive sessions still read it.
    environment = {**folder.marker.variables, "PATH": path, "SHLVL": "1"}
    return render(
        "sshd_config.j2",
        host_key=quote(str(folder.host_key)),
        pid_file=quote(str(folder.sshd_pid)),
        authorized_keys=quote(str(folder.root / "authorized_keys").replace("%", "%%")),
        user=user_name(),
        environment=[quote(f"{name}={value}") for name, value in environment.items()],
        use_pam=_is_locked_root(),
    )


def quote(value: str) -> str:
    """Quote one value of sshd's configuration.

    Raises:
        KedgeError: the value can't be quoted.
    """
    if "\n" in value or '"' in value:
        raise KedgeError(
            f"{value!r} can't stand in sshd's configuration",
            why="it holds a quote or a line end",
            fix="choose a folder without them with KEDGE_STATE_DIR, and look at PATH",
        )
    return '"' + value.replace("\\", "\\\\") + '"'


def _is_locked_root() -> bool:
    """Tell whether root's password is locked: sshd then admits root through PAM only."""
    if os.getuid() != 0 or not _SHADOW.exists():
        return False
    rows = [line.split(":") for line in _SHADOW.read_text().splitlines()]
    return any(row[0] == "root" and row[1].startswith("!") for row in rows)


def _machine_config(folder: MachineFolder, facts: Facts, store_url: str) -> MachineConfig:
    return MachineConfig(
        machine=folder.id,
        run=facts.run_id,
        provider="local",
        root=str(folder.root),
        created=facts.created,
        deadline_at=facts.deadline_at,
        usd_per_hour=facts.usd_per_hour,
        store_url=store_url,
        end_command=tuple(module_argv(facts, folder, "ending")),
        sockets=facts.sockets,
        ship_every=_SHIP_SECONDS,
        rank=facts.rank,
    )


def _unpack(archive: bytes, target: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
            for member in tar:
                _unpack_member(tar, member, target)
    except (tarfile.TarError, OSError, EOFError) as err:
        raise KedgeError("the agent's archive can't be unpacked", why=str(err)) from err


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = tar.extractfile(member) if member.isfile() else None
    path = target / member.name
    if content is not None and ".." not in path.parts:
        write_atomically(path, content.read(), within=target.parent)
