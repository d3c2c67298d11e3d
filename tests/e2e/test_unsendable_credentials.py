"""A library's error for a credential with a line break contains the credential; kedge must not show it."""

from __future__ import annotations

import pytest

from tests.support.laptop import Laptop

MARK = "kedgeMarker7Qx"
NOBODY = {
    "KEDGE_DIGITALOCEAN_ENDPOINT": "https://127.0.0.1:9",
    "KEDGE_AMD_ENDPOINT": "https://127.0.0.1:9",
    "KEDGE_LAMBDA_ENDPOINT": "https://127.0.0.1:9",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIAKEDGE",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
JOB = """
    name: toy
    run: sleep 1
    resources: {infra: %s}
"""


@pytest.mark.parametrize(
    ("infra", "name"),
    [
        ("do, instance_type: s-2vcpu-4gb", "DIGITALOCEAN_ACCESS_TOKEN"),
        ("amd, accelerators: MI300X", "AMD_DEVCLOUD_TOKEN"),
        ("lambda, accelerators: A10", "LAMBDA_API_KEY"),
        ("aws, accelerators: T4", "AWS_SESSION_TOKEN"),
        ("aws, accelerators: T4", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_credential_that_cannot_be_sent_is_not_shown(laptop: Laptop, infra: str, name: str) -> None:
    """The error has its name; no server listens at the address."""
    laptop.extra_env |= {**NOBODY, name: f"{MARK}\n{MARK}"}
    laptop.write_job(JOB % infra)
    said = laptop.kedge("plan", code=2) + laptop.errors
    assert MARK not in said
    assert "can't be sent" in said


def test_a_token_with_a_trailing_newline_is_accepted(laptop: Laptop) -> None:
    """Other tools do the same: only the connection fails."""
    laptop.extra_env |= {**NOBODY, "DIGITALOCEAN_ACCESS_TOKEN": f" {MARK}\r\n"}
    laptop.write_job(JOB % "do, instance_type: s-2vcpu-4gb")
    assert "Connection refused" in " ".join(laptop.kedge("plan").split())


def test_a_key_of_spaces_that_cannot_be_sent_is_not_shown(laptop: Laptop) -> None:
    """The error names the variable instead."""
    keys = {"SPACES_ACCESS_KEY_ID": f"{MARK}\n{MARK}", "SPACES_SECRET_ACCESS_KEY": "secret"}
    bucket = {"KEDGE_SPACES_BUCKET": "mine", "KEDGE_SPACES_ENDPOINT": "http://127.0.0.1:9"}
    token = {"DIGITALOCEAN_ACCESS_TOKEN": "dop_v1_x"}
    laptop.extra_env |= {**NOBODY, **bucket, **keys, **token}
    laptop.write_job(JOB % "do, instance_type: s-2vcpu-4gb")
    said = laptop.kedge("plan", code=None) + laptop.errors
    assert MARK not in said
    assert "SPACES_ACCESS_KEY_ID can't be sent" in said
