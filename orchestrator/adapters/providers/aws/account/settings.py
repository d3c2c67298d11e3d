"""The parameters of account.yaml: from the user, else as the account has them, else the template's defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.adapters.providers.aws.account.stack import Stack
from orchestrator.core.errors import BadRequestError

_DEFAULTS = {"BucketName": "", "RunDays": "60", "ReadBuckets": "", "RunRole": "false"}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """The settings of the account level that the user wants; what is left out stays as it is.

    Attributes:
        bucket: the bucket's name; defaults to `kedge-ACCOUNT-REGION` for an account without a bucket.
        read_buckets: all other buckets that runs may read; an empty tuple for none.
        run_role: create one role for all runs, for users who may not create one for each run; kept until a removal.
        budget_usd: a month, for the whole account; zero removes the alarm.
        budget_email: the alarm's recipient.
    """

    bucket: str | None = None
    read_buckets: tuple[str, ...] | None = None
    run_role: bool = False
    budget_usd: Decimal | None = None
    budget_email: str | None = None


def resolve_settings(stack: Stack | None, wanted: AccountSettings, *, default_bucket: str) -> dict[str, str]:
    """Return a value for each parameter.

    Args:
        stack: None for an account without a stack.
        wanted: the user's settings.
        default_bucket: the bucket's name in an account without a bucket.

    Raises:
        BadRequestError: a setting isn't possible.
    """
    for name in wanted.read_buckets or ():
        _refuse_no_bucket(name)
    present = _DEFAULTS | ({"BucketName": default_bucket} if stack is None else dict(stack.parameters))
    settings = {name: present[name] for name in _DEFAULTS} | _given(wanted)
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
            f"{name!r} is not a valid bucket name",
            why="a name has 3 to 63 letters in lower case, digits, dots and dashes",
            fix="write it without s3:// and without a path, for example --read-bucket my-data",
        )


def _given(wanted: AccountSettings) -> dict[str, str]:
    given = {
        "BucketName": wanted.bucket,
        "ReadBuckets": None if wanted.read_buckets is None else ",".join(dict.fromkeys(wanted.read_buckets)),
        "RunRole": "true" if wanted.run_role else None,
    }
    return {name: value for name, value in given.items() if value is not None}
