"""What kedge has in the account, asked for when it is first needed: making the provider contacts nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from orchestrator.adapters.datasets.push import BucketData
from orchestrator.adapters.objects.s3 import S3Store
from orchestrator.adapters.objects.stage import S3Stage
from orchestrator.adapters.providers.aws.account import Account, find_account
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.job import DataMount
    from orchestrator.core.ports import Clock, CodeSource, Progress, StagedData
    from orchestrator.core.report import Command, ResultFile
    from orchestrator.core.wire import RunConfig

_WHOSE = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


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
        kept = self._cache.remember("account", "", self._ask)
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
        return S3Store(self._s3, self.account.bucket)

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
        return self._session.client("s3", self.account.region or None)

    def _ask(self) -> dict[str, str] | None:
        account = find_account(self._session)
        return asdict(account) if account else None


class HomeStore:
    """Implements `core.ports.ResultStore` over a bucket that is looked for when it is first used."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""
        return self._home.store.url

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped."""
        return self._home.store.manifest(run_id)

    def command(self, run_id: str) -> Command | None:
        """Return the command's state as it was last shipped."""
        return self._home.store.command(run_id)

    def shipper(self, run_id: str) -> str:
        """Return the machine that shipped last."""
        return self._home.store.shipper(run_id)

    def shipped_at(self, run_id: str) -> datetime | None:
        """Return when the agent last shipped."""
        return self._home.store.shipped_at(run_id)

    def read_text(self, run_id: str, path: str) -> str:
        """Return one shipped text file."""
        return self._home.store.read_text(run_id, path)

    def fetch(self, run_id: str, destination: str, progress: Progress) -> None:
        """Copy the shipped results into a folder, and verify them."""
        self._home.store.fetch(run_id, destination, progress)


class HomeStage:
    """Implements `core.ports.Stage` likewise."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> str:
        """Bring the code there, and return the content hash."""
        return self._home.stage.put_code(run_id, source, progress)

    def put_start(self, run_id: str, config: RunConfig) -> None:
        """Leave the command's configuration there."""
        self._home.stage.put_start(run_id, config)


class HomeData:
    """Implements `core.ports.DataStage` likewise."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the copy of a mount's source to the source's state."""
        return self._home.data.put_data(mount, progress, delete=delete)
