"""Reads Amazon's descriptions of the services that kedge calls, once for all programs that a server forks.

A program that is started normally reads them itself, which takes a third of a second of every command on AWS. The
programs also share what botocore builds from them: tests/support/preloaded/sdk_memory.py.
"""

from __future__ import annotations

import pydo  # noqa: F401 - kedge imports it when it makes a client

from orchestrator.adapters.providers.aws.access.credentials import open_session
from tests.support.preloaded.sdk_memory import share_among_clients

_SERVICES = ("cloudformation", "ec2", "iam", "pricing", "s3", "scheduler", "service-quotas", "ssm", "sts")


def read_descriptions() -> None:
    """Make a client of each service; nothing is contacted."""
    session = open_session(None, "us-east-1")
    for service in _SERVICES:
        client = session.client(service, aws_access_key_id="none", aws_secret_access_key="none")  # type: ignore[call-overload]
        client.can_paginate(next(iter(client.meta.method_to_api_mapping)))


share_among_clients()
read_descriptions()
