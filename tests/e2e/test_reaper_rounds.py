"""What the timer of `kedge reap --install` does in its rounds, with only the environment that its unit gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.e2e.reaper import launch_and_die, with_systemd, write_key
from tests.support.laptop import Laptop

BUCKET = {"KEDGE_STORE_BUCKET": "mine", "KEDGE_STORE_ENDPOINT": "http://127.0.0.1:9"}
STORE_KEYS = {"KEDGE_STORE_ACCESS_KEY_ID": "id", "KEDGE_STORE_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture
def laptop(lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path) -> Laptop:
    """A user's computer with a Lambda account and a user systemd."""
    with_systemd(lambda_api, laptop, tmp_path)
    write_key(laptop, lambda_api.environ["LAMBDA_API_KEY"])
    return laptop


def forget_a_machine(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """Leave a machine whose launch died before it started the command."""
    launch_and_die(lambda_api, laptop, "--without-reaper")
    assert lambda_api.instances()


def test_a_round_ends_machines_without_the_keys_of_the_bucket(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """The unit names the shell's bucket, as docs/lambda.md sets it up, and never has its keys."""
    laptop.extra_env |= {**BUCKET, **STORE_KEYS}
    forget_a_machine(lambda_api, laptop)
    laptop.kedge("reap", "--install")
    unit = Path(laptop.extra_env["XDG_CONFIG_HOME"]) / "systemd" / "user" / "kedge-reap.service"
    assert "KEDGE_STORE_BUCKET=mine" in unit.read_text()
    assert "KEDGE_STORE_SECRET" not in unit.read_text()
    laptop.kedge("reap", "--yes", env=dict.fromkeys(STORE_KEYS, ""))
    assert lambda_api.instances() == []


def test_a_launch_with_a_bucket_but_without_its_keys_is_refused(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """Before anything is rented: its results would be lost."""
    laptop.extra_env |= BUCKET
    laptop.kedge("plan", "--without-reaper", code=2)
    assert "KEDGE_STORE_SECRET_ACCESS_KEY is not" in " ".join(laptop.errors.split())
    assert lambda_api.instances() == []


def test_a_round_without_providers_fails(laptop: Laptop) -> None:
    """For example if the variable of a schedule isn't set: such rounds would always be green."""
    laptop.kedge("reap", "--yes", "--provider", "", code=2)
    assert "names no provider" in laptop.errors


def test_a_round_whose_stamp_cannot_be_written_ends_machines(
    lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path
) -> None:
    """The disk is full, or a link is in its place: the round reports it after ending all that it found."""
    forget_a_machine(lambda_api, laptop)
    (laptop.state / "reaper").symlink_to(tmp_path)
    laptop.kedge("reap", "--yes", env={"KEDGE_TIMER": "kedge-reap"})
    assert f"no stamp of lambda, so launches there will be refused: {laptop.state}/reaper is a link" in laptop.errors
    assert lambda_api.instances() == []
