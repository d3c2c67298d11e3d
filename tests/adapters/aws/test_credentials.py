"""Sign-in to AWS: roles with an MFA code, SSO profiles, and the region that the environment selects."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.exceptions import RefreshWithMFAUnsupportedError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.market.offers import list_offers
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.cloudbox.aws.box import Box
from tests.support.laptop import Laptop

CODE = "654098"
WHO = "from orchestrator.adapters.providers.aws.access.session import AwsSession; print(AwsSession().account_id())"
PROFILES = """
[profile base]
region = us-east-1
[profile admin]
role_arn = arn:aws:iam::123456789012:role/admin
source_profile = keys
mfa_serial = arn:aws:iam::123456789012:mfa/ada
region = us-east-1
[profile sso]
sso_start_url = https://example.awsapps.com/start
sso_region = us-east-1
sso_account_id = 123456789012
sso_role_name = Operator
region = us-east-1
"""


@pytest.fixture
def home(api: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with keys and profiles in files."""
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "config").write_text(PROFILES)
    key, secret = api.env["AWS_ACCESS_KEY_ID"], api.env["AWS_SECRET_ACCESS_KEY"]
    (folder / "credentials").write_text(f"[keys]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    return tmp_path


def in_terminal(answer: str) -> str:
    """Run a separate command on a terminal, type an answer, and return what the terminal showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", WHO])
    shown = b""
    while b"MFA code" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, f"{answer}\n".encode())
    try:
        while more := os.read(terminal, 1024):
            shown += more
    except OSError:
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


def test_an_mfa_code_is_asked_for_once_an_hour_and_not_for_each_command(
    home: Path, api: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is cached where the AWS CLI caches it, so the next command works without a terminal.

    fact: aws-cli-cache.
    """
    monkeypatch.setenv("AWS_PROFILE", "admin")
    shown = in_terminal(CODE)
    assert "123456789012" in shown.splitlines()[-1]
    assert CODE not in shown
    again = subprocess.run([sys.executable, "-c", WHO], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert again.stdout.strip() == b"123456789012"
    (asked,) = api.calls("sts", "AssumeRole")
    assert asked.params["TokenCode"] == CODE
    (kept,) = (home / ".aws" / "cli" / "cache").iterdir()
    assert kept.stat().st_mode & 0o077 == 0


def test_without_a_terminal_no_mfa_code_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer or a script fails with an error that says how to sign in, before any request to AWS."""
    monkeypatch.setenv("AWS_PROFILE", "admin")
    with pytest.raises(BadRequestError) as refused:
        AwsSession().account_id()
    assert "no terminal" in refused.value.why
    assert "in a terminal first" in refused.value.fix


def test_a_session_that_expires_during_a_command_says_how_to_continue() -> None:
    """The SDK asks for a code only once in a session."""
    error = translate(RefreshWithMFAUnsupportedError(), "the machine can't be looked at")
    assert isinstance(error, BadRequestError)
    assert "run the command again in a terminal" in error.fix


def test_an_expired_sso_login_names_the_command_that_renews_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the profile's name, so it can be pasted."""
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(BadRequestError) as refused:
        AwsSession().client("ec2")
    assert refused.value.fix == "run `aws sso login --profile sso`"


def test_with_an_expired_sso_login_the_plan_uses_the_snapshot(
    home: Path, laptop: Laptop, api: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without credentials; the basis says why. A launch is refused, and the error names the sign-in command."""
    monkeypatch.setenv("AWS_PROFILE", "sso")
    laptop.extra_env |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith("AWS_") and not name.startswith(("AWS_ACCESS", "AWS_SECRET"))
    }
    laptop.extra_env |= {"HOME": str(home), "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shown = " ".join(laptop.kedge("offers", "--provider", "aws", "--gpu", "t4").split())
    assert "a snapshot of" in shown
    assert "run `aws sso login --profile sso`" in shown
    laptop.kedge("launch", "--provider", "aws", "--gpu", "t4", "--ttl", "1h", "--yes", code=1)
    assert "nothing is rented at the prices of a snapshot" in laptop.errors
    assert "run `aws sso login --profile sso`" in laptop.errors


def test_if_a_role_cannot_be_assumed_without_network_the_plan_uses_the_snapshot(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials are fetched before the first call, and that request fails."""
    config = home / ".aws" / "config"
    config.write_text(config.read_text().replace("mfa_serial = arn:aws:iam::123456789012:mfa/ada\n", ""))
    monkeypatch.setenv("AWS_PROFILE", "admin")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    resources = Resources(accelerators=Accelerators(name="t4"))
    listing = list_offers(resources, AwsSession(), SystemClock(), tmp_path / "cache")
    assert not any(offer.live for offer in listing.offers)
    assert "could not be queried" in listing.notes[0]


def test_a_role_that_may_not_be_assumed_is_an_error(
    home: Path, api: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS has answered; prices of a snapshot would hide what to fix."""
    config = home / ".aws" / "config"
    config.write_text(config.read_text().replace("mfa_serial = arn:aws:iam::123456789012:mfa/ada\n", ""))
    monkeypatch.setenv("AWS_PROFILE", "admin")
    api.fail_next("AssumeRole", "AccessDenied", status=403, times=None)
    with pytest.raises(KedgeError, match="the AWS account can't be used"):
        list_offers(Resources(accelerators=Accelerators(name="t4")), AwsSession(), SystemClock(), tmp_path / "cache")


class Portal(BaseHTTPRequestHandler):
    """The SSO portal, which returns a role's credentials for a token."""

    def do_GET(self) -> None:
        """Answer GetRoleCredentials for the one token."""
        known = self.headers["x-amz-sso_bearer_token"] == "token"
        until = (datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000
        keys = {"accessKeyId": "ASIA", "secretAccessKey": "s", "sessionToken": "t", "expiration": int(until)}
        body = json.dumps({"roleCredentials": keys} if known else {"message": "Session token not found"}).encode()
        self.send_response(200 if known else 401)
        if not known:
            self.send_header("x-amzn-ErrorType", "UnauthorizedException")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@pytest.fixture
def portal(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An SSO portal, and the file in which `aws sso login` keeps its token."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Portal)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("AWS_PROFILE", "sso")
    folder = home / ".aws" / "sso" / "cache"
    folder.mkdir(parents=True)
    yield folder / f"{hashlib.sha1(b'https://example.awsapps.com/start').hexdigest()}.json"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("token", "works"), [("token", True), ("revoked", False)])
def test_an_sso_profile_works_until_its_login_ends(portal: Path, token: str, works: bool) -> None:
    """The token from `aws sso login` is enough. A token that the portal no longer knows is an expired login."""
    until = datetime.now(UTC) + timedelta(hours=8)
    kept = {
        "accessToken": token,
        "expiresAt": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        "startUrl": "https://example.awsapps.com/start",
    }
    portal.write_text(json.dumps(kept))
    program = (
        "from orchestrator.adapters.providers.aws.access.session import AwsSession\n"
        "print(AwsSession().credentials_name())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if works:
        assert done.stdout.strip() == hashlib.sha256(b"ASIA").hexdigest()
    else:
        assert "aws sso login --profile sso" in done.stderr


@pytest.mark.parametrize(
    ("environ", "region"),
    [
        ({"AWS_REGION": "eu-north-1"}, "eu-north-1"),
        ({"AWS_REGION": ""}, "us-east-1"),
        ({}, "us-east-1"),
    ],
)
def test_aws_region_overrides_aws_default_region(home: Path, environ: dict[str, str], region: str) -> None:
    """Every other AWS SDK reads AWS_REGION; botocore doesn't. fact: aws-region-variable."""
    assert AwsSession(environ=environ).region == region
    assert AwsSession(environ=environ, region="ap-south-1").region == "ap-south-1"
