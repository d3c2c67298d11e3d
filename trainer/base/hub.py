"""Access to the Hugging Face Hub. The token comes from the environment only."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from trainer.base.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAccess:
    """The Hub's address (None: the public one) and the token, which its repr leaves out.

    Attributes:
        patience: seconds that a push may take, besides one for each MB of its files.
    """

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    patience: float = 600.0


def check_hub(repo: str, access: HubAccess) -> None:
    """Check before hours of training that the settings allow a push.

    Raises:
        BadRequestError: the repository's name is invalid, there is no token, or huggingface_hub is missing.
    """
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise _refusal(repo, why="a repository is OWNER/NAME", fix="for example --set publish.hub_repo=me/digits")
    if not access.token:
        raise _refusal(repo, why="there is no token", fix="set HF_TOKEN to a token that may write")
    if find_spec("huggingface_hub") is None:
        raise _refusal(repo, why="huggingface_hub is not installed", fix="pip install huggingface_hub")


def _refusal(repo: str, *, why: str, fix: str) -> BadRequestError:
    return BadRequestError(f"--set publish.hub_repo={repo} cannot be pushed to", why=why, fix=fix)
