"""The secrets of runs that start by themselves: SecureString parameters in the parameter store of AWS Systems Manager.

They are in the region of the account level, below `/kedge/runs/<run>/`, which only the run's own role can read. Each
machine has its own path (`.../m1/HF_TOKEN`), so that no parameter is ever replaced: a machine can't read an old value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, is_denied, is_throttled, translate
from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.providers.aws.tags import RUN, user_tags
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.sweep import Leftover

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_ssm.type_defs import TagTypeDef

    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.adapters.providers.aws.context import AwsContext
    from orchestrator.adapters.providers.aws.record import AwsRun
    from orchestrator.core.transfers import SecretOrder

_log = logging.getLogger(__name__)

PATH = "/kedge/runs"
"""Everything below is kedge's; infra/aws/account.yaml and operator-policy.json name it, too."""

MOST_BYTES = 4096
"""The size of a standard parameter's value, which costs nothing. fact: ssm-standard-parameters"""

_AT_ONCE = 10
_PER_PAGE = 50
_PATIENCE = timedelta(minutes=2)
"""How long to repeat a request that AWS refuses for its rate: three writes in a second. fact: ssm-rates."""
_OF_AMAZON = ".amazonaws.com"
_SHARED = (
    "all runs of this account have one role (`bootstrap --run-role`): the machines of any run could read the secrets"
)
_OVER_SSH = "write `start: ssh`: this computer then sends them over SSH"


class AwsSecrets:
    """Implements `core.transfers.SecretStore`."""

    def __init__(self, aws: AwsContext) -> None:
        self._aws = aws

    def place(self, run_id: str) -> str:
        """Name the place; if the account level can't be read now, it is only checked when the secrets are stored.

        Raises:
            BadRequestError: all runs share a role, or the account was set up by a kedge that stored no secrets.
        """
        try:
            account = self._read_account()
        except KedgeError:
            # A plan can be made without credentials or a network.
            return "AWS's parameter store"
        self._refuse_exposed(account, run_id)
        return f"AWS's parameter store in {account.region} ({PATH}/{run_id}/)"

    def put(self, order: SecretOrder) -> str:
        """Store each value as a parameter of its own, in JSON, whose name the run's record has before.

        Raises:
            BadRequestError: as for `place`, or a value is too long.
            KedgeError: AWS refuses, or doesn't answer; some may be stored.
        """
        account = self._read_account()
        self._refuse_exposed(account, order.run_id)
        path = f"{PATH}/{order.run_id}/{order.machine_id.rpartition('-')[2]}"
        values = {f"{path}/{name}": _encode(name, value) for name, value in order.values.items()}
        _record(self._aws, order.run_id, tuple(values))
        client = self._aws.session.client("ssm", account.region)
        tags: list[TagTypeDef] = [
            {"Key": key, "Value": value} for key, value in {**user_tags(dict(order.tags)), RUN: order.run_id}.items()
        ]
        for name, value in values.items():
            put = partial(_put, client, name, value, tags)
            retry(put, on=_was_throttled, within=_PATIENCE, clock=self._aws.clock)
        return _url(client, path)

    def _read_account(self) -> Account:
        """Return the account level; the cached one may be a day old, and isn't enough for a refusal."""
        account = self._aws.account()
        return account if account.stores_secrets and not account.shared_role else self._aws.fresh_account()

    def _refuse_exposed(self, account: Account, run_id: str) -> None:
        """Refuse to store secrets that the run's machines couldn't read, or that others' could."""
        if account.shared_role or self._aws.records.run(run_id).shared_role:
            raise refuse_shared()
        if not account.stores_secrets:
            raise BadRequestError(
                "this account can't store secrets for machines that start by themselves",
                why="an earlier kedge has set it up: no role of a run may read parameters",
                fix=f"run `kedge bootstrap --provider aws` again, or {_OVER_SSH}",
            )


def refuse_shared() -> BadRequestError:
    """Make the error for secrets that every run's machines could read."""
    return BadRequestError("secrets can't be stored for a machine that starts by itself", why=_SHARED, fix=_OVER_SSH)


def remove_secrets(aws: AwsContext, run_id: str, record: AwsRun, *, is_full: bool) -> Sequence[str]:
    """Delete a run's secrets: those in its record, and those that AWS lists unless the record is complete.

    Somebody whose policy is of an earlier kedge may not be allowed to list any: a run can be released nevertheless.

    Returns:
        A line about what was deleted, or what may be left; nothing if there were none.

    Raises:
        KedgeError: AWS doesn't allow to delete them, or doesn't answer.
    """
    if not record.secrets.parameters and (is_full or not aws.account().stores_secrets):
        return ()
    client = aws.session.client("ssm", aws.account().region)
    lines: list[str] = []
    names = set(record.secrets.parameters)
    try:
        names |= set() if is_full else {left.name for left in list_parameters(client, f"{PATH}/{run_id}")}
    except KedgeError as err:
        if not is_denied(err):
            raise
        lines.append(f"kept secrets below {PATH}/{run_id}/, if there are any: {err.why}")
    delete = partial(_delete, client, run_id, sorted(names))
    removed = retry(delete, on=_was_throttled, within=_PATIENCE, clock=aws.clock)
    if removed:
        lines.append(f"deleted {removed} {'secret' if removed == 1 else 'secrets'} below {PATH}/{run_id}/")
    return lines


def secret_leftovers(aws: AwsContext) -> Sequence[Leftover]:
    """List the secrets of runs; nothing, without a request for them, in an account that stores none.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    try:
        account = aws.account()
    except BadRequestError:
        # There was no bootstrap.
        return ()
    if not account.stores_secrets:
        return ()
    return list_parameters(aws.session.client("ssm", account.region), PATH)


def list_parameters(client: SSMClient, path: str) -> Sequence[Leftover]:
    """List the parameters of runs below a path, without their values.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    try:
        pages = client.get_paginator("describe_parameters").paginate(
            ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": [path]}],
            # Pages count what the filter drops, too, and few are answered in a second. fact: ssm-rates
            PaginationConfig={"PageSize": _PER_PAGE},
        )
        found = [each for page in pages for each in page["Parameters"]]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the secrets of runs can't be listed") from err
    return [
        Leftover(
            kind="secret",
            name=each["Name"],
            run_id=each["Name"].removeprefix(f"{PATH}/").partition("/")[0],
            region=client.meta.region_name,
            created_at=each.get("LastModifiedDate"),
            is_secret=True,
        )
        for each in found
        if "Name" in each
    ]


def _delete(client: SSMClient, run_id: str, names: Sequence[str]) -> int:
    """Delete parameters; names that AWS doesn't know are no error. Return how many there were."""
    removed = 0
    try:
        for start in range(0, len(names), _AT_ONCE):
            answer = client.delete_parameters(Names=list(names[start : start + _AT_ONCE]))
            removed += len(answer.get("DeletedParameters", ()))
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the secrets of run {run_id} can't be deleted") from err
    return removed


def _record(aws: AwsContext, run_id: str, names: tuple[str, ...]) -> None:
    account = aws.account_id()

    def add(record: AwsRun) -> AwsRun:
        known = record.secrets
        parameters = tuple(dict.fromkeys((*known.parameters, *names)))
        return replace(record, account=account, secrets=replace(known, parameters=parameters))

    aws.records.change_run(run_id, add, aws.clock)


def _encode(name: str, value: str) -> str:
    """Write a value in JSON: it may be empty, or hold `{{`, neither of which the store takes. fact: ssm-values."""
    text = json.dumps(value).replace("{", "\\u007b")
    if len(text) > MOST_BYTES:
        raise BadRequestError(
            f"the value of {name} is too long for AWS's parameter store",
            why=f"it has {len(text):,} bytes, and {MOST_BYTES:,} are allowed",
            fix=f"use a shorter one, or {_OVER_SSH}",
        )
    return text


def _put(client: SSMClient, name: str, value: str, tags: Sequence[TagTypeDef]) -> None:
    """Store one value, encrypted with the account's default key for parameters. fact: ssm-default-key."""
    try:
        try:
            client.put_parameter(Name=name, Value=value, Type="SecureString", Tier="Standard", Tags=list(tags))
        except ClientError as err:
            if code_of(err) != "ParameterAlreadyExists":
                raise
            # The answer to this very request may have been lost. Tags can't be given again. fact: ssm-overwrite.
            client.put_parameter(Name=name, Value=value, Type="SecureString", Tier="Standard", Overwrite=True)
    except (ClientError, BotoCoreError) as err:
        what = f"the secret {name.rpartition('/')[2]} can't be stored in AWS's parameter store"
        if isinstance(err, ClientError) and code_of(err) == "ValidationException":
            # AWS's message may quote what it refuses.
            raise KedgeError(what, why="AWS answered PutParameter with ValidationException", fix=_OVER_SSH) from None
        raise translate(err, what) from err


def _was_throttled(err: BaseException) -> bool:
    return err.__cause__ is not None and is_throttled(err.__cause__)


def _url(client: SSMClient, path: str) -> str:
    """Return the address by which a machine finds the parameters."""
    endpoint = client.meta.endpoint_url
    is_usual = (urlsplit(endpoint).hostname or "").endswith(_OF_AMAZON)
    query = "" if is_usual else f"?{urlencode({'endpoint': endpoint}, safe=':/')}"
    return f"ssm://{client.meta.region_name}{path}{query}"
