"""The way to AWS: profile, credentials, region and endpoint by the SDK's own means, and one client for each service."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from orchestrator.adapters.aws_sdk import no_region, translate
from orchestrator.adapters.providers.aws.credentials import open_session, sign_in
from orchestrator.adapters.providers.aws.partitions import ALWAYS_OPEN, refuse_region
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
"""Services that answer the same in every region."""


class AwsSession:
    """Clients of one account, made when they are asked for and kept."""

    def __init__(
        self, *, profile: str | None = None, region: str | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Read the SDK's configuration; nothing is contacted.

        Args:
            profile: of the SDK's configuration files; AWS_PROFILE, else `default`, when left out.
            region: AWS_REGION, else AWS_DEFAULT_REGION, else the profile's, when left out.
            environ: the user's environment, for AWS_REGION, which the SDK doesn't read. fact: aws-region-variable.

        Raises:
            BadRequestError: there is no such profile, or the region is in another part of AWS.
        """
        try:
            self._session = open_session(profile, region or (environ or {}).get("AWS_REGION") or None)
        except BotoCoreError as err:
            raise translate(err, "AWS can't be used") from err
        self.said: str = self._session.region_name or ""
        """The region that the user's configuration names; empty for none."""
        refuse_region(self.said)
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._account_id = ""
        self._signed_in = False

    @property
    def region(self) -> str:
        """The region for what names none.

        Raises:
            BadRequestError: none was said.
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
        """Return the client of a service in a region, always the same one.

        Args:
            service: the SDK's name of it.
            region: the session's own when left out; services of the whole account need none.
            single_shot: send each request once. The SDK's retries would hide an unclear outcome, and ask again where
                capacity is lacking: calls that create machines take such a client.

        Raises:
            BadRequestError: no region was said, it is in another part of AWS, or the configuration is broken.
        """
        usual = self._region_of_the_account if service in _OF_THE_ACCOUNT else None
        key = (service, region or usual or self.region, single_shot)
        refuse_region(key[1])
        if key not in self._clients:
            self._clients[key] = self._make_client(*key)
        return self._clients[key]

    def known_regions(self) -> tuple[str, ...]:
        """List the regions that the SDK knows; nothing is contacted, and a new one may be missing."""
        return tuple(self._session.get_available_regions("ec2"))

    def account_id(self) -> str:
        """Return the account's twelve digits; asked once.

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
        """Name the credentials: the same name means the same account, for a key never changes its account.

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
            KedgeError: AWS doesn't tell.
        """
        try:
            found = self.client("ec2", self._region_of_the_account).describe_regions()["Regions"]
        except (ClientError, BotoCoreError) as err:
            raise translate(err, "the account's regions can't be listed") from err
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
