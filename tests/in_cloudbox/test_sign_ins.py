"""`kedge doctor` alone: whether each configured account accepts this computer, with one request each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from orchestrator.adapters.providers import PROVIDERS
from tests.cloudbox.aws.box import Box
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.laptop import Laptop

ACCOUNTS = tuple(name for name, entry in PROVIDERS.items() if entry.sign_in)
WATCHED = """
import json, sys
contacted = []
sys.addaudithook(
    lambda event, args: contacted.append(str(args)) if event in ("socket.connect", "socket.getaddrinfo") else None
)
from orchestrator.cli.__main__ import main
sys.argv = ["kedge", "doctor"]
try:
    main()
finally:
    print(json.dumps([contacted, sorted({"boto3", "botocore", "pydo"} & set(sys.modules))]))
"""


@pytest.fixture
def laptop(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """A laptop without any account, whatever this computer has."""
    for name in list(os.environ):
        if name.startswith(
            ("AWS_", "DIGITALOCEAN_", "AMD_", "LAMBDA_", "KEDGE_DIGITALOCEAN", "KEDGE_AMD", "KEDGE_LAMBDA")
        ):
            monkeypatch.delenv(name)
    laptop.extra_env["HOME"] = str(laptop.home)
    return laptop


def sign_ins(laptop: Laptop, code: int = 0) -> dict[str, dict[str, str]]:
    """Return the output about each account."""
    checks = {check["name"]: check for check in laptop.json("doctor", code=code)}
    return {name: checks[f"{name} credentials"] for name in ACCOUNTS}


def test_without_an_account_nobody_is_contacted_and_no_sdk_is_loaded(laptop: Laptop) -> None:
    """Each line says how to set it up, and nothing is wrong."""
    said = sign_ins(laptop)
    assert {check["verdict"] for check in said.values()} == {"unused"}
    assert "aws configure" in said["aws"]["fix"]
    assert "DIGITALOCEAN_ACCESS_TOKEN" in said["do"]["fix"]
    assert "AMD_DEVCLOUD_TOKEN" in said["amd"]["fix"]
    assert "LAMBDA_API_KEY" in said["lambda"]["fix"]
    argv = [sys.executable, "-c", WATCHED]
    done = subprocess.run(argv, cwd=laptop.home, env=laptop.env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[], []]


def test_a_region_alone_is_no_account(laptop: Laptop) -> None:
    """Many users have an AWS configuration without credentials; the SDK would search the network for some."""
    (laptop.home / ".aws").mkdir()
    (laptop.home / ".aws" / "config").write_text("[default]\nregion = eu-west-1\n")
    argv = [sys.executable, "-c", WATCHED]
    done = subprocess.run(argv, cwd=laptop.home, env=laptop.env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])[0] == []
    assert sign_ins(laptop)["aws"]["verdict"] == "unused"


def test_each_account_that_is_set_up_is_asked_once(laptop: Laptop, api: Box, do_api: DigitalOceanBox) -> None:
    """For its identity, which costs nothing; other accounts get no request."""
    laptop.extra_env |= {**api.env, **do_api.environ}
    api.reset_calls()
    said = sign_ins(laptop)
    used = {name: check["verdict"] for name, check in said.items() if check["verdict"] != "unused"}
    assert used == {"aws": "ok", "do": "ok"}
    assert "arn:aws" in said["aws"]["found"]
    assert "account of" in said["do"]["found"]
    assert [call.action for call in api.calls()] == ["GetCallerIdentity"]
    assert [call.path for call in do_api.calls] == ["/v2/account"]


def test_a_missing_region_is_reported(laptop: Laptop, api: Box) -> None:
    """The credentials are good; a launch would need a region."""
    region = ("AWS_REGION", "AWS_DEFAULT_REGION")
    laptop.extra_env |= {name: value for name, value in api.env.items() if name not in region}
    said = sign_ins(laptop)["aws"]
    assert (said["verdict"], "no region" in said["found"]) == ("warning", True)
    assert "AWS_REGION" in said["fix"]


def test_credentials_that_are_refused_or_get_no_answer_fail_at_once(laptop: Laptop, do_api: DigitalOceanBox) -> None:
    """Each with its fix, and without a retry: a launch there would fail."""
    laptop.extra_env |= {
        **do_api.environ,
        "DIGITALOCEAN_ACCESS_TOKEN": "dop_v1_nobodys",
        "AWS_ACCESS_KEY_ID": "AKIANOBODY",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AMD_DEVCLOUD_TOKEN": "x",
        "KEDGE_AMD_ENDPOINT": "https://127.0.0.1:9",
        "LAMBDA_API_KEY": "x",
        "KEDGE_LAMBDA_ENDPOINT": "https://127.0.0.1:9",
    }
    said = sign_ins(laptop, code=1)
    assert {check["verdict"] for check in said.values()} == {"failed"}
    assert all(check["fix"] for check in said.values())
    assert "dop_v1_nobodys" not in str(said)
