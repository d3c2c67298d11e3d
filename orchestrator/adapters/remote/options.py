"""The OpenSSH client's options for a machine: the same for our commands, rsync and the ssh-config."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.adapters.remote.places import SshPlaces
from orchestrator.adapters.remote.proxy import proxy_command
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import SshAddress

Options = tuple[tuple[str, str], ...]
"""Keywords of ssh_config(5) and their values, quoted as that file wants them."""

FORWARDS_NOTHING = (
    "ForwardAgent",
    "ForwardX11",
    "ForwardX11Trusted",
    "Tunnel",
    "GSSAPIDelegateCredentials",
    "AddKeysToAgent",
    "PermitLocalCommand",
)
"""Keywords that are off: somebody may have taken the machine over, and a `Host *` of the user's may have them on."""

KEEPALIVE_SECONDS = 15
KEEPALIVE_MISSES = 3
CONNECT_SECONDS = 10


def host_key_algorithms(host_key: str) -> str:
    """Return what to ask the server for: nothing but proofs of the pinned key."""
    kind = host_key.split(maxsplit=1)[0]
    # One RSA key signs in three ways; SHA-1 is the one that nobody should accept any more.
    return "rsa-sha2-512,rsa-sha2-256" if kind == "ssh-rsa" else kind


def openssh_options(places: SshPlaces, address: SshAddress) -> Options:
    """List what makes the client accept this machine alone, and offer it our key alone."""
    # Not quoted: this keyword takes the rest of its line, as it is.
    proxy = proxy_command(address, places.user_config)
    return (
        *((("ProxyCommand", proxy),) if proxy else ()),
        ("HostName", quoted(address.host)),
        ("Port", str(address.port)),
        ("User", quoted(address.user)),
        ("IdentityFile", quoted(address.key_file)),
        ("IdentitiesOnly", "yes"),
        ("IdentityAgent", "none"),
        ("UserKnownHostsFile", quoted(str(places.known_hosts(address)))),
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
        ("ControlPath", quoted(str(places.control_socket(address)))),
        ("ControlPersist", "10m"),
    )


def openssh_argv(options: Options, address: SshAddress, extra: Sequence[str] = ()) -> list[str]:
    """Return the client's argv up to and including the host; `extra` comes first, so that it wins."""
    ours = [part for key, value in options for part in ("-o", f"{key}={value}")]
    return ["ssh", "-F", "none", *extra, "-o", "LogLevel=ERROR", *ours, "--", address.host]


def quoted(value: str) -> str:
    """Quote a value for ssh_config(5), where % begins a placeholder.

    Raises:
        BadRequestError: it holds what that file can't say.
    """
    if not value.isprintable() or "${" in value:
        raise BadRequestError(
            f"{value!r} can't be written into an SSH configuration",
            why="it holds a control character or ${",
            fix="choose a name or a path without it",
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(letter in escaped for letter in " \t\"'\\#=") else escaped
