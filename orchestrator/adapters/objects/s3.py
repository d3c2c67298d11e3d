"""A bucket as the object store of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.adapters.objects.results import Results
from orchestrator.adapters.objects.s3_folder import S3Folder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# One connection carries 50 to 100 MB/s (Amazon S3 User Guide, "Performance guidelines", 2026-11); the SDK keeps ten.
_WORKERS = 8
_OF_AMAZON = ".amazonaws.com"


class S3Store(Results):
    """The results of runs, in a bucket."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        prefix: str = "runs",
        *,
        keys_file: str = "",
        owner: str = "",
        shared: bool = False,
    ) -> None:
        """Name the place; nothing is contacted.

        Args:
            client: of the bucket's region.
            bucket: its name.
            prefix: what the keys of all runs begin with, without a slash at its end.
            keys_file: where the machine has its keys to the bucket; empty where it has a role.
            owner: the AWS account whose bucket it must be, for the machine; the laptop's client names it by itself.
            shared: other runs' machines write to this run's place, with the role that they share.
        """
        self._client = client
        self._bucket_name = bucket
        self._prefix = prefix
        self._keys_file = keys_file
        self._owner = owner
        self._shared = shared
        super().__init__(S3Folder(client=client, bucket=bucket, prefix=prefix), workers=_WORKERS)

    @property
    def url(self) -> str:
        """Where it is, what the agent is told: with its region, and its endpoint where that isn't Amazon's own."""
        where = {"region": self._client.meta.region_name}
        endpoint = self._client.meta.endpoint_url
        if not (urlsplit(endpoint).hostname or "").endswith(_OF_AMAZON):
            where["endpoint"] = endpoint
        if self._keys_file:
            where["keys"] = self._keys_file
        if self._owner:
            where["owner"] = self._owner
        if self._shared:
            where["shared"] = "1"
        return f"s3://{self._bucket_name}/{quote(self._prefix)}?{urlencode(where, safe=':/')}"
