"""A user's computer with a Lambda account and a user systemd, whose timer `kedge reap --install` has installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.e2e.fake_systemd import install_systemd
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    deadline: 10m
    resources: {infra: lambda, accelerators: H100}
"""


def with_systemd(lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path) -> Laptop:
    """A user's computer with a Lambda account and a user systemd."""
    programs, config = tmp_path / "bin", tmp_path / "config"
    install_systemd(programs)
    laptop.extra_env |= {
        **lambda_api.environ,
        "KEDGE_SSH_FROM": "203.0.113.7/32",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(config),
    }
    laptop.write_job(JOB)
    return laptop


def write_key(laptop: Laptop, key: str, *more: str) -> None:
    """Write the key, and the timer's other variables, into the file from which it takes secrets."""
    secrets = Path(laptop.extra_env["XDG_CONFIG_HOME"]) / "kedge" / "reap.env"
    secrets.parent.mkdir(parents=True, exist_ok=True)
    secrets.write_text("\n".join((f"LAMBDA_API_KEY={key}", *more, "")))


def install(laptop: Laptop) -> str:
    """Write the shell's key, and install the timer."""
    write_key(laptop, laptop.extra_env["LAMBDA_API_KEY"])
    return laptop.kedge("reap", "--install")


def run_a_round(laptop: Laptop) -> None:
    """Do what a refusal names as the next step."""
    subprocess.run(["systemctl", "--user", "start", "kedge-reap.service"], env=laptop.env, check=False)


def change_stamp(laptop: Laptop, **changed: str) -> None:
    """Change what the last round has recorded."""
    stamp = laptop.state / "reaper" / "lambda.json"
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | changed))


def refused(laptop: Laptop, *words: str) -> str:
    """Run a command that is refused, and return its output."""
    laptop.kedge(*words, code=2)
    return " ".join(laptop.errors.split())


def write_settings(tmp_path: Path, text: str) -> Path:
    """Write the user's settings."""
    settings = tmp_path / "config" / "kedge" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(text)
    settings.chmod(0o600)
    return settings


def break_systemd(tmp_path: Path) -> None:
    """Replace the user's systemd by one that doesn't answer."""
    (tmp_path / "bin" / "systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")


def launch_and_die(lambda_api: LambdaBox, laptop: Laptop, *words: str) -> str:
    """Leave a machine whose launch died before it started the command, and return its run."""
    launch = laptop.start("launch", "--yes", "--detach", *words)
    # Not the call alone: it is recorded before it is carried out.
    wait_until(lambda_api.instances)
    launch.kill()
    launch.communicate()
    ledger = laptop.ledger()
    (run,) = ledger.runs()
    ledger.close()
    return run.run_id
