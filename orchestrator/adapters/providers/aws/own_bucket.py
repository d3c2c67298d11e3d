"""The way to kedge's own bucket: every request says whose it must be.

Buckets' names are the whole world's, and a name that was given up may be taken by a stranger. S3 refuses a request that
names another owner than the bucket has, so that nothing is ever sent to, or read from, a stranger's bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client

    from orchestrator.adapters.providers.aws.session import AwsSession

_EVENT = "before-parameter-build.s3"
_OWNER = "ExpectedBucketOwner"


def own_s3(session: AwsSession, account_id: str, region: str | None = None) -> S3Client:
    """Return a client whose every request on a bucket names its owner: parts of uploads, listings and deletions too.

    Args:
        session: the way to AWS.
        account_id: the owner's.
        region: of the bucket; the session's own when left out.
    """
    client = session.client("s3", region)

    def name_owner(params: dict[str, Any], model: OperationModel, **_rest: Any) -> None:
        if model.input_shape is not None and _OWNER in model.input_shape.members:
            params[_OWNER] = account_id

    # The session keeps its clients: of two registrations of one name, the first one stays.
    client.meta.events.register(_EVENT, name_owner, unique_id=f"kedge-{_OWNER}")
    return client
