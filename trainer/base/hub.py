"""Pushes a run's results to the Hugging Face Hub in one commit. The token comes from the environment only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from trainer.base.errors import BadRequestError, PublishError, first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAccess:
    """The Hub's address (None: the public one) and the token, which its repr leaves out."""

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None


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


def push(repo: str, files: Sequence[Path], access: HubAccess, *, private: bool, message: str) -> str:
    """Commit files to a model repository, create it if necessary, and return the commit's URL.

    All files are in one commit, so nobody sees half of them; unchanged files are not uploaded.

    Raises:
        PublishError: the Hub refuses the push, or can't be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors  # noqa: PLC0415

    api = HfApi(endpoint=access.endpoint, token=access.token)
    operations = [CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path) for path in files]
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return api.create_commit(repo, operations, commit_message=message).commit_url
    # The client's HTTP library differs by version; `errors` exports the HTTPError of the installed one.
    except (errors.HTTPError, OSError, ValueError, RuntimeError) as err:  # type: ignore[attr-defined]
        raise PublishError(
            f"the results were not pushed to {repo}",
            why=first_line(err),
            fix="they are safe in the output folder; run the same command again: it pushes without training",
        ) from err


def _refusal(repo: str, *, why: str, fix: str) -> BadRequestError:
    return BadRequestError(f"--set publish.hub_repo={repo} cannot be pushed to", why=why, fix=fix)
