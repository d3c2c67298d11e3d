"""The environments of processes that kedge starts.

A process gets only listed variables if it outlives the command, or if a job may inherit its environment: the user's
shell may hold cloud tokens under any name. A process that ends with the command may see what kedge sees.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.machine import SshAddress

_LASTING = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ"),
        *("LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC"),
        *("LC_TIME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
    }
)

AWS_PLACES = frozenset(
    {
        *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"),
        *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_USE_FIPS_ENDPOINT"),
        *("AWS_USE_DUALSTACK_ENDPOINT", "AWS_EC2_METADATA_DISABLED", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
        *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"),
    }
)
"""Where AWS's credentials are and how they are used, never a credential itself (AWS SDKs and Tools Reference Guide)."""

_OF_A_CHECK = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR"})

# A jump host may need the user's SSH agent, a proxy command AWS's Session Manager.
_WAY = frozenset({"SSH_AUTH_SOCK", "KRB5CCNAME", *AWS_PLACES})


def lasting_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that outlives the command: it holds no secret."""
    return {name: value for name, value in environ.items() if name in _LASTING}


def master_environment(environ: Mapping[str, str], address: SshAddress) -> dict[str, str]:
    """Return the environment of an SSH connection that is kept open for later commands.

    A proxy command that needs keys from variables doesn't work in it; then no connection is kept open.
    """
    way = _WAY if address.is_proxied else frozenset[str]()
    return lasting_environment(environ) | {name: value for name, value in environ.items() if name in way}


def client_environment(environ: Mapping[str, str], address: SshAddress) -> dict[str, str]:
    """Return the environment of an SSH client that ends with the command; the user's proxy command may run in it."""
    return dict(environ) if address.is_proxied else lasting_environment(environ)


def check_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's check of its data, which the job file has chosen: it holds no secret."""
    given = {name: value for name, value in environ.items() if name in _OF_A_CHECK or name.startswith("LC_")}
    return given | {"PYTHONUNBUFFERED": "1"}
