"""The Hugging Face Hub: one commit with a run's results. The token comes from the environment only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from trainer.errors import BadRequestError, PublishError, first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAccess:
    """Where the Hub is, None for its own address, and by whose leave; the token isn't shown."""

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None


def check_hub(repo: str, access: HubAccess) -> None:
    """Make sure, before hours of training, that a push can be tried.

    Raises:
        BadRequestError: the name is none, there is no token, or huggingface_hub is missing.
    """
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise _refusal(repo, why="a repository is OWNER/NAME", fix="for example --set publish.hub_repo=me/digits")
    if not access.token:
        raise _refusal(repo, why="there is no token", fix="set HF_TOKEN to a token that may write")
    if find_spec("huggingface_hub") is None:
        raise _refusal(repo, why="huggingface_hub is not installed", fix="pip install huggingface_hub")


def push(repo: str, files: Sequence[Path], access: HubAccess, *, private: bool, message: str) -> str:
    """Commit files to a model repository, made first where it isn't there, and return the commit's address.

    All of them arrive in one commit, so nobody sees half; files that didn't change are left alone.

    Raises:
        PublishError: the Hub, or the way to it, refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors  # noqa: PLC0415

    api = HfApi(endpoint=access.endpoint, token=access.token)
    operations = [CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path) for path in files]
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return api.create_commit(repo, operations, commit_message=message).commit_url
    # The client's own HTTP library, which differs by version, raises below the HTTPError that `errors` imports.
    except (errors.HTTPError, OSError, ValueError, RuntimeError) as err:  # type: ignore[attr-defined]
        raise PublishError(
            f"the results were not pushed to {repo}",
            why=first_line(err),
            fix="they are safe in the output folder; the same command tries again, without training",
        ) from err


def _refusal(repo: str, *, why: str, fix: str) -> BadRequestError:
    return BadRequestError(f"--set publish.hub_repo={repo} cannot be pushed to", why=why, fix=fix)
