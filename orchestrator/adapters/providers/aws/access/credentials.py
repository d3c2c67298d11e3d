"""Opens the SDK's session, with the AWS CLI's cache of temporary credentials and MFA codes read from the terminal.

The credentials of an assumed role are valid for an hour. The SDK alone forgets them when the program ends, and would
ask for the MFA code with each command. The CLI stores them in ~/.aws/cli/cache; kedge shares that cache, so that one
code serves both.
"""

from __future__ import annotations

import getpass
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.credentials import create_credential_resolver
from botocore.exceptions import BotoCoreError, ClientError, SSOError, TokenRetrievalError
from botocore.loaders import Loader
from botocore.session import Session
from botocore.utils import JSONFileCache

from orchestrator.adapters.aws_answers import check_answers
from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.partitions import ALWAYS_OPEN
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.credentials import require_sendable

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_CACHE = Path("~/.aws/cli/cache")
_UNUSABLE = "the AWS account can't be used"


def open_session(profile: str | None, region: str | None) -> boto3.Session:
    """Open a session; nothing is contacted.

    Args:
        profile: from the SDK's configuration files; defaults to AWS_PROFILE, else `default`.
        region: defaults to AWS_DEFAULT_REGION, else the profile's.

    Raises:
        BotoCoreError: there is no such profile, or the configuration is broken.
    """
    core = Session(profile=profile)
    core.register_component("data_loader", _open_descriptions(core.get_config_variable("data_path") or ""))
    # fact: aws-cli-cache.
    kept = JSONFileCache(working_dir=str(_CACHE.expanduser()))
    # Any region's STS endpoint can assume the role.
    asked_in = region or core.get_config_variable("region") or ALWAYS_OPEN
    resolver = create_credential_resolver(core, cache=kept, region_name=asked_in)  # type: ignore[arg-type]
    # The SDK's own prompt falls back to standard input, and waits for ever if nobody answers.
    resolver.get_provider("assume-role")._prompter = _ask_for_code  # type: ignore[attr-defined]
    core.register_component("credential_provider", resolver)
    check_answers(core)
    return boto3.Session(botocore_session=core, region_name=region)


def sign_in(session: boto3.Session) -> Credentials | None:
    """Return the session's credentials, fetching temporary ones now; None if there are none.

    Raises:
        BadRequestError: the SSO login has expired, an MFA code is needed and there is no terminal, or a key has
            invalid characters.
        KedgeError: AWS refuses.
    """
    try:
        found = session.get_credentials()
        if found is not None:
            _require_sendable(found)
    except (SSOError, TokenRetrievalError) as err:
        profile = session.profile_name
        raise BadRequestError(
            _UNUSABLE,
            why=f"the SSO login of profile {profile} has expired, or there was none: {' '.join(str(err).split())}",
            fix=f"run `aws sso login --profile {profile}`",
        ) from err
    except (ClientError, BotoCoreError) as err:
        raise translate(err, _UNUSABLE) from err
    return found


def _require_sendable(found: Credentials) -> None:
    keys = found.get_frozen_credentials()
    for part, value in (("key id", keys.access_key), ("secret key", keys.secret_key), ("session token", keys.token)):
        require_sendable(value or "", f"the AWS {part} ({found.method})")


class _Descriptions(Loader):
    """The SDK's service descriptions, shared by all sessions: reading EC2's and IAM's takes a third of a second."""

    @property
    def search_paths(self) -> list[str]:
        """Return a copy: boto3 appends a folder to it with each session, which kedge doesn't need."""
        return list(super().search_paths)


@cache
def _open_descriptions(data_path: str) -> _Descriptions:
    """Open them in the SDK's folders and in the user's (AWS_DATA_PATH)."""
    folders = [str(Path(os.path.expandvars(folder)).expanduser()) for folder in data_path.split(os.pathsep) if folder]
    return _Descriptions(extra_search_paths=folders)


def _ask_for_code(prompt: str) -> str:
    """Ask for an MFA code on the terminal, without echo.

    Raises:
        BadRequestError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise BadRequestError(
            _UNUSABLE,
            why="the profile's role takes an MFA code, and there is no terminal to ask for it",
            fix="run a kedge or aws command in a terminal first, such as `kedge status`: its code is good for an hour",
        )
    return getpass.getpass(prompt)
