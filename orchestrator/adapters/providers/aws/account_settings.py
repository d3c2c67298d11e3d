"""The parameters of account.yaml: what the user wishes, over what the account has, over what the template says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.adapters.providers.aws.account_stack import Stack
from orchestrator.core.errors import BadRequestError

_DEFAULTS = {"BucketName": "", "RunDays": "60", "ReadBuckets": "", "RunRole": "false"}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountWishes:
    """What the user wants of the account level; what is left out stays as it is.

    Attributes:
        bucket: the bucket's name; `kedge-ACCOUNT-REGION` for an account that has none yet.
        read_buckets: all the other buckets that runs may read; an empty tuple for none.
        run_role: make one role for all runs, for people who may not make one for each run; it stays until a removal.
        budget_usd: a month, for the whole account; zero takes the alarm away.
        budget_email: where the alarm goes.
    """

    bucket: str | None = None
    read_buckets: tuple[str, ...] | None = None
    run_role: bool = False
    budget_usd: Decimal | None = None
    budget_email: str | None = None


def settle_settings(stack: Stack | None, wishes: AccountWishes, *, default_bucket: str) -> dict[str, str]:
    """Return a value for each parameter.

    Args:
        stack: None for an account that has none yet.
        wishes: what the user said.
        default_bucket: the bucket's name in an account that has none yet.

    Raises:
        BadRequestError: a wish that can't be fulfilled.
    """
    for name in wishes.read_buckets or ():
        _refuse_no_bucket(name)
    present = _DEFAULTS | ({"BucketName": default_bucket} if stack is None else dict(stack.parameters))
    settings = {name: present[name] for name in _DEFAULTS} | _wished(wishes)
    if stack is not None and settings["BucketName"] != present["BucketName"]:
        raise BadRequestError(
            f"the account's bucket is {stack.outputs.get('Bucket', 'there')} already",
            why="a bucket can't be renamed",
            fix="leave --bucket out, or take the account level away first with --remove",
        )
    if stack is None and "." in settings["BucketName"]:
        raise BadRequestError(
            f"the bucket's name {settings['BucketName']} has dots",
            why="TLS certificates of S3 don't cover such names, so that machines could not verify the bucket",
            fix="choose a name with dashes instead",
        )
    return settings


def _refuse_no_bucket(name: str) -> None:
    if not _BUCKET.fullmatch(name):
        raise BadRequestError(
            f"{name!r} is no bucket's name",
            why="a name has 3 to 63 letters in lower case, digits, dots and dashes",
            fix="say it without s3:// and without a path, for example --read-bucket my-data",
        )


def _wished(wishes: AccountWishes) -> dict[str, str]:
    wished = {
        "BucketName": wishes.bucket,
        "ReadBuckets": None if wishes.read_buckets is None else ",".join(dict.fromkeys(wishes.read_buckets)),
        "RunRole": "true" if wishes.run_role else None,
    }
    return {name: value for name, value in wished.items() if value is not None}
