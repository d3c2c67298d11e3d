"""The policy of a run's machines: use their own run's objects, read the job's data sets and their own secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.adapters.providers.aws.run_resources.secrets import PATH
from orchestrator.adapters.sync.data.push import data_name

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.core.job import DataMount

Document = Mapping[str, Any]
"""An IAM policy."""

_OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
_OWN_DATA = re.compile(r"/data/([A-Za-z0-9][A-Za-z0-9._-]*)/.*", re.DOTALL)
"""The path of an `s3://` address within a data set. A name can't contain IAM's special characters `*`, `?` and `$`."""


def data_sets(mounts: Sequence[DataMount], bucket: str) -> Sequence[str]:
    """Return the names of the bucket's data sets that a job reads: uploaded ones, and those in `s3://` addresses."""
    names = (_data_set(mount, bucket) for mount in mounts)
    return sorted({name for name in names if name})


def named_buckets(mounts: Sequence[DataMount], allowed: Sequence[str]) -> Sequence[str]:
    """Return the other buckets in a job's addresses, if the account allows runs to read them."""
    addresses = (urlsplit(mount.source) for mount in mounts if mount.is_fetched)
    return sorted({address.netloc for address in addresses if address.scheme == "s3"} & set(allowed))


def write_policy(
    bucket: str,
    run_id: str,
    data: Sequence[str] = (),
    *,
    others: Sequence[str] = (),
    partition: str = "aws",
    secrets: Sequence[Document] = (),
) -> Document:
    """Render the policy of a run's role.

    Args:
        bucket: the account's bucket.
        run_id: the run.
        data: the names of the data sets that it may read.
        others: other buckets that it may read as a whole.
        partition: the AWS partition.
        secrets: the statements that allow to read its secrets (`allow_secrets`).
    """
    arn = f"arn:{partition}:s3:::{bucket}"
    whole = [f"arn:{partition}:s3:::{name}" for name in others]
    own, readable = f"runs/{run_id}/*", [f"data/{name}/*" for name in data]
    reading = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": [f"{arn}/{prefix}" for prefix in readable]}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(_OBJECT_ACTIONS), "Resource": f"{arn}/{own}"},
            *([reading] if readable else ()),
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": arn,
                "Condition": {"StringLike": {"s3:prefix": [own, *readable]}},
            },
            *([_reading(whole)] if whole else ()),
            *secrets,
        ],
    }


def allow_secrets(account: Account, run_id: str) -> Sequence[Document]:
    """Allow to read the run's parameters, and to decrypt these alone, through the parameter store.

    The default key's own policy allows every decryption within the account. Whether that counts under a permissions
    boundary isn't documented (inferred: ssm-key-under-boundary): role and boundary allow it, too.
    """
    parameters = f"arn:{account.partition}:ssm:{account.region}:{account.id}:parameter{PATH}/{run_id}/*"
    key = f"arn:{account.partition}:kms:{account.region}:{account.id}:key/*"
    within = {
        "StringEquals": {"kms:ViaService": f"ssm.{account.region}.amazonaws.com"},
        "StringLike": {"kms:EncryptionContext:PARAMETER_ARN": parameters},
    }
    return (
        {"Effect": "Allow", "Action": "ssm:GetParameters", "Resource": parameters},
        {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": key, "Condition": within},
    )


def _reading(buckets: Sequence[str]) -> Document:
    """Allow reading whole buckets."""
    return {
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [resource for arn in buckets for resource in (arn, f"{arn}/*")],
    }


def _data_set(mount: DataMount, bucket: str) -> str:
    if not mount.is_fetched:
        return data_name(mount.source, mount.target)
    address = urlsplit(mount.source)
    found = _OWN_DATA.fullmatch(address.path) if (address.scheme, address.netloc) == ("s3", bucket) else None
    return found.group(1) if found else ""
