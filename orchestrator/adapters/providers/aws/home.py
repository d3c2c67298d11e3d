"""What kedge has in the account, asked for when it is first needed: making the provider contacts nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.datasets.push import BucketData
from orchestrator.adapters.objects.s3 import S3Store
from orchestrator.adapters.objects.stage import S3Stage
from orchestrator.adapters.providers.aws.account import Account, find_account
from orchestrator.adapters.providers.aws.cache import DAY, Cache
from orchestrator.adapters.providers.aws.own_bucket import own_s3
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.ports import Clock

_WHOSE = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


_ACCOUNT = ("account", "")
"""How the cache calls the account level."""


def forget_account(cache_dir: Path, clock: Clock) -> None:
    """Have the account level looked at again: it has been changed."""
    Cache(cache_dir, clock).forget(*_ACCOUNT)


def cache_name(environ: Mapping[str, str]) -> str:
    """Name the folder for what is remembered of an account, by what chooses the account."""
    chosen = "\0".join(environ.get(name, "") for name in _WHOSE)
    return f"cache-{hashlib.sha256(chosen.encode()).hexdigest()[:12]}"


class Home:
    """The account level, and the bucket in it.

    Args:
        session: the way to AWS.
        cache: of what is asked once a day.
        data_memory: a folder for what data sets were last seen to hold.
        clock: tells how young a file is.
    """

    def __init__(self, session: AwsSession, cache: Cache, *, data_memory: Path, clock: Clock) -> None:
        self._session = session
        self._cache = cache
        self._data_memory = data_memory
        self._clock = clock

    @cached_property
    def account(self) -> Account:
        """What a bootstrap has made; asked once a day.

        Raises:
            BadRequestError: there was none.
        """
        return self._account(max_age=DAY)

    def ask_again(self) -> Account:
        """Ask for it now, whatever is remembered of it.

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

    @cached_property
    def store(self) -> S3Store:
        """The bucket, as the place of results."""
        return S3Store(self._s3, self.account.bucket, owner=self.account.id, shared=self.account.shared_role)

    @cached_property
    def stage(self) -> S3Stage:
        """The bucket, as the place of what machines start from."""
        return S3Stage(self._s3, self.account.bucket)

    @cached_property
    def data(self) -> BucketData:
        """The bucket, as the place of the laptop's data."""
        return BucketData(self._s3, self.account.bucket, state=self._data_memory, clock=self._clock)

    @property
    def _s3(self) -> S3Client:
        return own_s3(self._session, self.account.id, self.account.region or None)

    def _ask(self) -> dict[str, Any] | None:
        account = find_account(self._session)
        return asdict(account) if account else None
