"""Creates the laptop's SSH key for kedge's machines, and derives secrets from it."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import tempfile
from pathlib import Path

from orchestrator.adapters.host.files import make_folder
from orchestrator.core.errors import KedgeError

_NAME = "id_ed25519"


def ensure_key(folder: Path) -> tuple[Path, str]:
    """Return the private key's path and the public key's text; create the key if there is none.

    Raises:
        KedgeError: ssh-keygen is missing, or fails.
    """
    private = ensure_private_key(folder)
    return private, _public_text(private)


def ensure_private_key(folder: Path) -> Path:
    """Return the private key's path; create the key if there is none.

    Raises:
        KedgeError: ssh-keygen is missing, or fails.
    """
    private = folder / _NAME
    if not private.exists():
        _create(private)
    return private


def derive_secret(private: Path, purpose: str) -> str:
    """Derive a secret from the laptop's key, always the same for a purpose; it reveals nothing about the key."""
    return hmac.new(private.read_bytes(), f"kedge {purpose}".encode(), hashlib.sha256).hexdigest()


def _create(private: Path) -> None:
    make_folder(private.parent)
    with tempfile.TemporaryDirectory(dir=private.parent, prefix=".new-key-") as aside:
        made = Path(aside) / _NAME
        _keygen("-q", "-t", "ed25519", "-N", "", "-C", "kedge", "-f", str(made))
        try:
            # Unlike a rename, a link fails if another command was quicker; then that command's key is used.
            private.hardlink_to(made)
        except FileExistsError:
            return


def _public_text(private: Path) -> str:
    # Derived from the private key, so that two commands at once can't combine halves of different keys.
    kind, key = _keygen("-y", "-f", str(private)).split()[:2]
    return f"{kind} {key} kedge"


def _keygen(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=30
        )
    except FileNotFoundError as err:
        raise KedgeError("ssh-keygen isn't installed", fix="install the openssh-client package") from err
    except subprocess.CalledProcessError as err:
        said = err.stderr.decode(errors="replace").strip().splitlines()
        raise KedgeError("ssh-keygen failed", why=said[-1] if said else f"exit code {err.returncode}") from err
    except subprocess.TimeoutExpired as err:
        raise KedgeError("ssh-keygen didn't end", why="it took more than 30 seconds") from err
    return done.stdout.decode()
