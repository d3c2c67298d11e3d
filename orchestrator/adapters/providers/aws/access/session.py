"""An AWS account's session: profile, credentials, region and endpoint as the SDK finds them, and cached clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from orchestrator.adapters.aws_sdk import no_region, translate
from orchestrator.adapters.providers.aws.access.credentials import open_session, sign_in
from orchestrator.adapters.providers.aws.access.partitions import ALWAYS_OPEN, refuse_region
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_ATTEMPTS = 4

_OF_THE_ACCOUNT = ("iam", "sts")
"""Services that are the same in every region."""


class AwsSession:
    """Makes and caches the clients of one account."""

    def __init__(
        self, *, profile: str | None = None, region: str | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Read the SDK's configuration; nothing is contacted.

        Args:
            profile: from the SDK's configuration files; defaults to AWS_PROFILE, else `default`.
            region: defaults to AWS_REGION, else AWS_DEFAULT_REGION, else the profile's.
            environ: the user's environment, for AWS_REGION, which the SDK doesn't read. fact: aws-region-variable.

        Raises:
            BadRequestError: there is no such profile, or the region is in another partition.
        """
        try:
            self._session = open_session(profile, region or (environ or {}).get("AWS_REGION") or None)
        except BotoCoreError as err:
            raise translate(err, "AWS can't be used") from err
        self.said: str = self._session.region_name or ""
        """The region that the user's configuration names; empty for none."""
        refuse_region(self.said)
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._makes = Lock()
        self._account_id = ""
        self._signed_in = False

    @property
    def region(self) -> str:
        """The default region.

        Raises:
            BadRequestError: none is configured.
        """
        if not self.said:
            raise no_region("AWS can't be used without a region")
        return self.said

    @overload
    def client(
        self, service: Literal["cloudformation"], region: str | None = ..., *, single_shot: bool = ...
    ) -> CloudFormationClient: ...
    @overload
    def client(self, service: Literal["budgets"], region: str | None = ..., *, single_shot: bool = ...) -> Any: ...
    @overload
    def client(self, service: Literal["ec2"], region: str | None = ..., *, single_shot: bool = ...) -> EC2Client: ...
    @overload
    def client(self, service: Literal["iam"], region: str | None = ..., *, single_shot: bool = ...) -> IAMClient: ...
    @overload
    def client(
        self, service: Literal["pricing"], region: str | None = ..., *, single_shot: bool = ...
    ) -> PricingClient: ...
    @overload
    def client(self, service: Literal["s3"], region: str | None = ..., *, single_shot: bool = ...) -> S3Client: ...
    @overload
    def client(
        self, service: Literal["scheduler"], region: str | None = ..., *, single_shot: bool = ...
    ) -> EventBridgeSchedulerClient: ...
    @overload
    def client(
        self, service: Literal["service-quotas"], region: str | None = ..., *, single_shot: bool = ...
    ) -> ServiceQuotasClient: ...
    @overload
    def client(self, service: Literal["ssm"], region: str | None = ..., *, single_shot: bool = ...) -> SSMClient: ...
    @overload
    def client(self, service: Literal["sts"], region: str | None = ..., *, single_shot: bool = ...) -> STSClient: ...

    def client(self, service: str, region: str | None = None, *, single_shot: bool = False) -> Any:
        """Return the client of a service in a region: the same object for each call.

        Args:
            service: the SDK's name of the service.
            region: defaults to the session's; services of the whole account need none.
            single_shot: send each request once, for calls that create machines: the SDK's retries would hide an
                unclear outcome, and repeat requests that lack capacity.

        Raises:
            BadRequestError: no region is configured, it is in another partition, or the configuration is broken.
        """
        usual = self._region_of_the_account if service in _OF_THE_ACCOUNT else None
        key = (service, region or usual or self.region, single_shot)
        refuse_region(key[1])
        # The SDK's clients are thread-safe, its session is not.
        with self._makes:
            if key not in self._clients:
                self._clients[key] = self._make_client(*key)
            return self._clients[key]

    def known_regions(self) -> tuple[str, ...]:
        """List the regions that the SDK knows; nothing is contacted, and new regions may be missing."""
        return tuple(self._session.get_available_regions("ec2"))

    def account_id(self) -> str:
        """Return the account's twelve digits; requested once.

        Raises:
            KedgeError: there are no credentials, or AWS doesn't accept them.
        """
        if not self._account_id:
            try:
                self._account_id = self.client("sts").get_caller_identity()["Account"]
            except (ClientError, BotoCoreError) as err:
                raise translate(err, "the AWS account can't be used") from err
        return self._account_id

    def credentials_name(self) -> str:
        """Return a hash of the access key's id: equal hashes mean the same account, since keys never change accounts.

        Raises:
            KedgeError: there are none.
        """
        found = sign_in(self._session)
        if found is None:
            raise translate(NoCredentialsError(), "the AWS account can't be used")
        return hashlib.sha256(str(found.access_key).encode()).hexdigest()

    def regions(self) -> tuple[str, ...]:
        """List the regions that are enabled for the account.

        Raises:
            KedgeError: AWS refuses, or doesn't answer.
        """
        what = "the account's regions can't be listed"
        # Before the client, which reads EC2's long description: `kedge reap` asks on computers without AWS, too.
        with self._makes:
            if sign_in(self._session) is None:
                raise translate(NoCredentialsError(), what)
        try:
            found = self.client("ec2", self._region_of_the_account).describe_regions()["Regions"]
        except (ClientError, BotoCoreError) as err:
            raise translate(err, what) from err
        return tuple(sorted(region["RegionName"] for region in found))

    @property
    def _region_of_the_account(self) -> str:
        return self.said or ALWAYS_OPEN

    def _make_client(self, service: str, region: str, single_shot: bool) -> Any:
        if not self._signed_in:
            sign_in(self._session)
            self._signed_in = True
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            # total_max_attempts counts the first request too; `max_attempts: 1` would still send two.
            retries={"mode": "standard", "total_max_attempts": 1 if single_shot else _ATTEMPTS},
        )
        make: Any = self._session.client
        try:
            return make(service, region_name=region, config=config)
        except BotoCoreError as err:
            raise translate(err, "AWS can't be used") from err
        except ValueError as err:
            raise BadRequestError("AWS can't be used", why=f"{err}", fix="see AWS_ENDPOINT_URL") from err
