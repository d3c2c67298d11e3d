"""Which variables of a shell hold what kedge itself rents machines with, where credentials lie, and how they look."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.errors import BadRequestError

_OWN = ("AWS_", "AMD_", "DIGITALOCEAN_", "SPACES_")

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
"""Where programs keep the user's credentials, and what these are."""


def is_own_credential(name: str) -> bool:
    """Tell whether a variable may open the user's cloud accounts: by its name, whatever its value is.

    A job that takes one can rent and delete in the user's name.
    """
    return name.startswith(_OWN) or (name.startswith("KEDGE_") and name.endswith("_TOKEN"))


def own_credentials(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are kedge's own credentials."""
    return tuple(name for name in names if is_own_credential(name))


def require_sendable(value: str, what: str) -> str:
    """Return a credential, where a request can carry it: no library is given one that it would name in its error.

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
