"""Recognizes credentials: kedge's own variables, the files where programs keep theirs, and values that can be sent."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.errors import BadRequestError

_OWN = ("AWS_", "AMD_", "DIGITALOCEAN_", "LAMBDA_", "SPACES_")
_SECRET_ENDINGS = ("_TOKEN", "_ACCESS_KEY_ID", "_SECRET_ACCESS_KEY")

PLACES = {
    "~/.aws": "AWS keys",
    "~/.azure": "Azure tokens",
    "~/.cache/huggingface/token": "a Hugging Face token",
    "~/.config/doctl": "DigitalOcean tokens",
    "~/.config/gcloud": "Google Cloud tokens",
    "~/.config/gh": "GitHub tokens",
    "~/.docker/config.json": "passwords of container registries",
    "~/.git-credentials": "passwords of git servers",
    "~/.gnupg": "GnuPG keys",
    "~/.kaggle": "a Kaggle token",
    "~/.kube": "keys of Kubernetes clusters",
    "~/.netrc": "passwords of servers",
    "~/.ssh": "SSH keys",
}
"""Files and folders where programs keep the user's credentials, and what they hold."""


def is_own_credential(name: str) -> bool:
    """Tell by its name whether a variable may open the user's cloud accounts.

    A job that gets one can rent and delete machines in the user's name.
    """
    return name.startswith(_OWN) or is_own_secret(name)


def is_own_secret(name: str) -> bool:
    """Tell whether one of kedge's own variables holds a secret; the others hold paths and settings."""
    return name.startswith("KEDGE_") and name.endswith(_SECRET_ENDINGS)


def own_credentials(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are kedge's own credentials."""
    return tuple(name for name in names if is_own_credential(name))


def require_sendable(value: str, what: str) -> str:
    """Return a credential if a request can carry it; otherwise a library would quote it in its error.

    Args:
        value: the credential.
        what: the variable that it comes from, or another name that isn't secret.

    Raises:
        BadRequestError: it holds a line end, a blank or another character that no credential has.
    """
    if value.isascii() and value.isprintable() and " " not in value:
        return value
    raise BadRequestError(
        f"{what} can't be sent",
        why="it holds a line end, a blank, or another character that no credential has",
        fix="set it again, without what was copied along with it",
    )
