"""The OpenSSH client's options for a machine, shared by kedge's commands, rsync and the ssh-config."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.adapters.ssh.proxy import proxy_command
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import SshAddress

Options = tuple[tuple[str, str], ...]
"""Keywords of ssh_config(5) and their values, quoted for that file."""

FORWARDS_NOTHING = (
    "ForwardAgent",
    "ForwardX11",
    "ForwardX11Trusted",
    "Tunnel",
    "GSSAPIDelegateCredentials",
    "AddKeysToAgent",
    "PermitLocalCommand",
)
"""Keywords that are set to "no", because the machine may be compromised, and the user's `Host *` may enable them."""

KEEPALIVE_SECONDS = 15
KEEPALIVE_MISSES = 3
CONNECT_SECONDS = 10


def host_key_algorithms(host_key: str) -> str:
    """Return the algorithms to request, only those of the pinned key."""
    kind = host_key.split(maxsplit=1)[0]
    # An RSA key can sign with three algorithms; the one with SHA-1 is obsolete.
    return "rsa-sha2-512,rsa-sha2-256" if kind == "ssh-rsa" else kind


def openssh_options(ssh_files: SshFiles, address: SshAddress) -> Options:
    """List options that make the client accept only this machine, and offer it only kedge's key."""
    # Not quoted, because this keyword takes the rest of its line unchanged.
    proxy = proxy_command(address, ssh_files.user_config)
    return (
        *((("ProxyCommand", proxy),) if proxy else ()),
        ("HostName", quoted(address.host)),
        ("Port", str(address.port)),
        ("User", quoted(address.user)),
        ("IdentityFile", quoted(address.key_file)),
        ("IdentitiesOnly", "yes"),
        ("IdentityAgent", "none"),
        ("UserKnownHostsFile", quoted(str(ssh_files.known_hosts(address)))),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("HostKeyAlgorithms", host_key_algorithms(address.host_key)),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
        ("VerifyHostKeyDNS", "no"),
        ("PreferredAuthentications", "publickey"),
        ("PasswordAuthentication", "no"),
        ("KbdInteractiveAuthentication", "no"),
        ("BatchMode", "yes"),
        *((forwards, "no") for forwards in FORWARDS_NOTHING),
        ("ClearAllForwardings", "yes"),
        ("Compression", "no"),
        ("ConnectTimeout", str(CONNECT_SECONDS)),
        ("ServerAliveInterval", str(KEEPALIVE_SECONDS)),
        ("ServerAliveCountMax", str(KEEPALIVE_MISSES)),
        ("ControlMaster", "auto"),
        ("ControlPath", quoted(str(ssh_files.control_socket(address)))),
        ("ControlPersist", "10m"),
    )


def openssh_argv(options: Options, address: SshAddress, extra: Sequence[str] = ()) -> list[str]:
    """Return the client's argv, which ends with the host; `extra` comes first, so that it wins."""
    ours = [part for key, value in options for part in ("-o", f"{key}={value}")]
    return ["ssh", "-F", "none", *extra, "-o", "LogLevel=ERROR", *ours, "--", address.host]


def quoted(value: str) -> str:
    """Quote a value for ssh_config(5), where % begins a placeholder.

    Raises:
        BadRequestError: that file can't express it.
    """
    if not value.isprintable() or "${" in value:
        raise BadRequestError(
            f"{value!r} can't be written into an SSH configuration",
            why="it holds a control character or ${",
            fix="choose a name or a path without it",
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(letter in escaped for letter in " \t\"'\\#=") else escaped
