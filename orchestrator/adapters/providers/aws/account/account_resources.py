"""The account level, looked up when it is first needed: opening the provider contacts nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.providers.aws.account.bucket import own_s3
from orchestrator.adapters.providers.aws.account.level import Account, find_account
from orchestrator.adapters.providers.aws.cache import DAY, Cache
from orchestrator.adapters.store.settings import S3Connection, S3Settings
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.ports import Clock

_WHOSE = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


_ACCOUNT = ("account", "")
"""The cache's key of the account level."""


def forget_account(cache_dir: Path, clock: Clock) -> None:
    """Drop the cached account level, since it has been changed."""
    Cache(cache_dir, clock).forget(*_ACCOUNT)


def cache_name(environ: Mapping[str, str]) -> str:
    """Return the name of an account's cache folder: a hash of the variables that choose the account."""
    chosen = "\0".join(environ.get(name, "") for name in _WHOSE)
    return f"cache-{hashlib.sha256(chosen.encode()).hexdigest()[:12]}"


class AccountResources:
    """The account level, and the bucket in it.

    Args:
        session: the account's session.
        cache: of what is requested once a day.
    """

    def __init__(self, session: AwsSession, cache: Cache) -> None:
        self._session = session
        self._cache = cache

    @cached_property
    def account(self) -> Account:
        """What a bootstrap has created; requested once a day.

        Raises:
            BadRequestError: there was none.
        """
        return self._account(max_age=DAY)

    def ask_again(self) -> Account:
        """Request it now, whatever the cache has.

        Raises:
            BadRequestError: there was none.
        """
        self.__dict__["account"] = self._account(max_age=timedelta(0))
        return self.account

    def _account(self, *, max_age: timedelta) -> Account:
        kept = self._cache.remember(*_ACCOUNT, self._ask, max_age=max_age)
        if kept is None:
            raise BadRequestError(
                "this AWS account isn't set up for kedge",
                why="it has no bucket, no boundary for the roles of runs and no role for deadlines yet",
                fix="run `kedge bootstrap --provider aws`, which shows what it makes before it does",
            )
        return Account(**kept)

    def open_bucket(self) -> S3Connection:
        """Make a client for the bucket; only the account level is requested.

        Raises:
            BadRequestError: there was no bootstrap.
        """
        account = self.account
        client = own_s3(self._session, account.id, account.region or None)
        settings = S3Settings(
            bucket=account.bucket,
            region=client.meta.region_name,
            endpoint=client.meta.endpoint_url,
            owner=account.id,
            is_shared=account.shared_role,
            if_missing="make it with `kedge bootstrap --provider aws`",
        )
        return S3Connection(client, settings)

    def _ask(self) -> dict[str, Any] | None:
        account = find_account(self._session)
        return asdict(account) if account else None
