"""Clients that share what botocore builds are like clients that don't: tests/support/preloaded/sdk_memory.py."""

from __future__ import annotations

import subprocess
import sys

from tests.support.preloaded.process import ROOT

_COMPARE = """
import boto3, inspect
from botocore import hooks
from tests.support.preloaded.sdk_memory import share_among_clients

def describe(service):
    session = boto3.Session("none", "none", region_name="eu-west-1")
    client = session.client(service)
    emitter = client.meta.events._emitter
    return sorted(dir(client)), client.meta.method_to_api_mapping, show(emitter._handlers._root)

def show(node):
    if isinstance(node, dict):
        return {key: show(value) for key, value in node.items()}
    if isinstance(node, hooks.NodeList):
        handlers = [handler for part in node for handler in part]
        assert all(hooks.accepts_kwargs(one) == bool(inspect.getfullargspec(one).varkw) for one in handlers if shared)
        return [[getattr(one, "__qualname__", repr(type(one))) for one in part] for part in node]
    return node

shared = False
apart = {service: describe(service) for service in ("ec2", "s3", "sts")}
shared = True
share_among_clients()
for _ in range(2):
    assert {service: describe(service) for service in apart} == apart

session = boto3.Session("none", "none", region_name="eu-west-1")
one, other = session.client("s3"), session.client("s3")
assert one.meta.service_model is other.meta.service_model
one.meta.events.register("before-send.s3", lambda **_: None)
assert show(other.meta.events._emitter._handlers._root) == apart["s3"][2]
"""


def test_clients_that_share_have_the_same_methods_and_handlers() -> None:
    subprocess.run([sys.executable, "-c", _COMPARE], cwd=ROOT, check=True, timeout=120)
