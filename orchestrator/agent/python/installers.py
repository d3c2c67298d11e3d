"""Installs locked versions of pip, if an image has none, and of uv, on its first use. Neither needs root."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.errors import AgentError
from . import locked

WHEELS = "https://files.pythonhosted.org/packages/py3/p/pip/"
"""The folder with pip's wheels, by file name. Source: CPython, Tools/build/bundle_ensurepip_wheels.py."""

_INSTALL_SECONDS = 300.0
_FETCH_SECONDS = 30.0
_FETCH_LIMIT_BYTES = 32 << 20

# The guard prevents endless recursion if an installer reports success without installing.
_UV = """#!/bin/sh
# kedge: uv is installed on its first use.
if [ -z "$KEDGE_UV_FETCHED" ] &&
    {python} -m pip install --quiet --ignore-installed --retries 1 --require-hashes -r {lock} >&2; then
    KEDGE_UV_FETCHED=1 exec "$0" "$@"
fi
echo "kedge: uv can't be installed on this machine; use pip instead" >&2
exit 1
"""


def ensure_pip(python: Path, env: Mapping[str, str], *, lock: str = locked.PIP, wheels: str = WHEELS) -> None:
    """Install pip into a virtual environment: the version bundled with its Python, else the locked one.

    Args:
        python: the environment's.
        env: pip's environment.
        lock: the locked version, with the SHA-256 of its files.
        wheels: the URL of the folder with its wheel.

    Raises:
        AgentError: neither can be installed.
    """
    try:
        call([str(python), "-Im", "ensurepip", "--default-pip"], "its Python has no ensurepip", env)
    except AgentError as missing:
        wheel = _fetch_wheel(lock, wheels, python.parent.parent, why=str(missing))
        install = [f"{wheel}/pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
        call([str(python), *install], "pip can't be installed", env)


def install_uv_stub(programs: Path) -> None:
    """Write a stub named uv into an environment, which installs the real uv when it is first called."""
    lock = programs.parent / "uv.txt"
    lock.write_text(locked.UV)
    (programs / "uv").write_text(_UV.format(python=shlex.quote(str(programs / "python")), lock=shlex.quote(str(lock))))
    (programs / "uv").chmod(0o755)


def _fetch_wheel(lock: str, wheels: str, folder: Path, *, why: str) -> Path:
    version, *hashes = re.findall(r"==(\S+)|--hash=sha256:([0-9a-f]{64})", lock)
    wheel = folder / f"pip-{version[0]}-py3-none-any.whl"
    address = wheels + wheel.name
    from urllib.request import urlopen  # noqa: PLC0415 - HTTP and TLS are on nobody else's way

    try:
        with urlopen(address, timeout=_FETCH_SECONDS) as answer:  # noqa: S310 - a constant, or a test's
            content = answer.read(_FETCH_LIMIT_BYTES)
    except OSError as err:
        raise AgentError("pip can't be downloaded", why=f"{why}; {address}: {err}".replace("\n", "; ")) from err
    if hashlib.sha256(content).hexdigest() not in {sha256 for _, sha256 in hashes}:
        raise AgentError("pip can't be downloaded", why=f"{why}; {address} isn't the locked file".replace("\n", "; "))
    wheel.write_bytes(content)
    return wheel


def call(
    argv: Sequence[str], failure: str, env: Mapping[str, str], *, fix: str = "", timeout: float = _INSTALL_SECONDS
) -> None:
    """Run an installer to its end.

    Raises:
        AgentError: it failed; with `failure`, `fix`, and its last lines as the reason.
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
