"""pip where an image has none, and uv where somebody asks for it. Neither needs root."""

from __future__ import annotations

import shlex
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import AgentError

ZIPAPP = "https://bootstrap.pypa.io/pip/pip.pyz"
"""pip as one file that a Python runs. Source: pip's documentation, "Installation", "Standalone zip application"."""

_INSTALL_SECONDS = 300.0
_FETCH_SECONDS = 30.0
_FETCH_LIMIT_BYTES = 32 << 20

# The guard is for an installer that says it has done what it hasn't.
_UV = """#!/bin/sh
# kedge: uv comes with its first use.
if [ -z "$KEDGE_UV_FETCHED" ] && {python} -m pip install --quiet --ignore-installed --retries 1 uv >&2; then
    KEDGE_UV_FETCHED=1 exec "$0" "$@"
fi
echo "kedge: uv can't be installed on this machine; pip does the same" >&2
exit 1
"""


def ensure_pip(python: Path, env: Mapping[str, str], *, zipapp: str = ZIPAPP) -> None:
    """Bring pip into a virtual environment: that which its Python carries along, else the one that its makers publish.

    Raises:
        AgentError: neither can be had.
    """
    try:
        call([str(python), "-Im", "ensurepip", "--default-pip"], "its Python has no ensurepip", env)
    except AgentError as missing:
        file = python.parent.parent / "pip.pyz"
        try:
            with urllib.request.urlopen(zipapp, timeout=_FETCH_SECONDS) as answer:  # noqa: S310 - a constant, or a test's
                file.write_bytes(answer.read(_FETCH_LIMIT_BYTES))
        except OSError as err:
            raise AgentError("pip can't be had", why=f"{missing}; {zipapp}: {err}".replace("\n", "; ")) from err
        call([str(python), str(file), "install", "--quiet", "pip"], "pip can't be installed", env)


def offer_uv(programs: Path) -> None:
    """Put a program called uv into an environment, which replaces itself by the real one when it is called."""
    (programs / "uv").write_text(_UV.format(python=shlex.quote(str(programs / "python"))))
    (programs / "uv").chmod(0o755)


def call(
    argv: Sequence[str], failure: str, env: Mapping[str, str], *, fix: str = "", timeout: float = _INSTALL_SECONDS
) -> None:
    """Run an installer to its end.

    Raises:
        AgentError: with `failure` and `fix`, and its last lines as the reason.
    """
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=True,
            env=dict(env),
        )
    except subprocess.CalledProcessError as err:
        said = (err.stdout or b"").decode(errors="replace").strip().splitlines()
        raise AgentError(
            failure, why="; ".join(said[-3:]) or f"{argv[0]} exited with {err.returncode}", fix=fix
        ) from err
    except (OSError, subprocess.SubprocessError) as err:
        raise AgentError(failure, why=str(err), fix=fix) from err
