"""A job to export, and an AWS account in moto that takes what was exported."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cloudbox.aws_cli import install
from tests.support.laptop import Laptop

JOB = """
name: shapes
workdir: .
resources: {infra: aws/us-east-1, accelerators: A10G:4}
envs: {EPOCHS: 20}
secrets: [HF_TOKEN]
data: {images: images, labels.csv: labels.csv, shards: "s3://open-data/shards/"}
setup: pip install -r requirements.txt
run: torchrun --nproc-per-node 4 train.py
checkpoints: ckpt
supervisor: {grace: 60s}
deadline: 4h
budget: $30
"""


@dataclass
class Account:
    """An account with a default network, a role for machines, and a bucket."""

    endpoint: str
    env: dict[str, str]
    subnets: list[str] = field(default_factory=list)
    group: str = ""

    def client(self, service: str) -> Any:
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def submit(self, folder: Path, values: dict[str, str], code: int = 0) -> str:
        """Run an export's `submit.sh` with these values; return what it prints."""
        done = subprocess.run(
            ["bash", str(folder / "submit.sh")],
            env={**os.environ, **self.env, **values},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr


@pytest.fixture
def account(moto: str, tmp_path: Path) -> Account:
    account = Account(moto, install(tmp_path / "programs", moto))
    ec2 = account.client("ec2")
    account.subnets = [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]][:2]
    account.group = ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]
    return account


@pytest.fixture
def shapes(laptop: Laptop) -> Laptop:
    """A laptop with a job for four GPUs, its code and its data."""
    laptop.write_job(JOB)
    (laptop.home / "requirements.txt").write_text("numpy\n")
    (laptop.home / "labels.csv").write_text("a,b\n")
    (laptop.home / "images").mkdir()
    (laptop.home / "images" / "one.png").write_bytes(b"png")
    (laptop.home / ".kedgeignore").write_text("images/\nlabels.csv\n")
    return laptop
