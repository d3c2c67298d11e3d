"""A timer that no longer works as a reaper: what a later launch, `status` and another installation report."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.e2e.reaper import (
    break_systemd,
    change_stamp,
    install,
    launch_and_die,
    refused,
    run_a_round,
    with_systemd,
    write_key,
)
from tests.support.laptop import Laptop


@pytest.fixture
def laptop(lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path) -> Laptop:
    """A user's computer with a Lambda account and a user systemd."""
    return with_systemd(lambda_api, laptop, tmp_path)


def test_a_timer_that_the_next_start_of_the_computer_ends_is_no_reaper(laptop: Laptop) -> None:
    """It is active, but disabled, so the next start of the computer ends it."""
    install(laptop)
    subprocess.run(["systemctl", "--user", "disable", "kedge-reap.timer"], env=laptop.env, check=True)
    assert "isn't enabled" in refused(laptop, "plan")
    laptop.kedge("reap", "--install")
    laptop.kedge("plan")


def test_the_next_round_notices_a_revoked_key(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """The timer keeps running, but its rounds can't list any machine."""
    install(laptop)
    write_key(laptop, "secret_nobodys")
    run_a_round(laptop)
    assert "could not look at lambda" in refused(laptop, "launch", "--yes")
    assert lambda_api.instances() == []


def test_a_round_without_network_blocks_no_launch_soon_after_a_good_one(laptop: Laptop) -> None:
    """A laptop wakes before its network does. Later, the fix is another round, not a new key."""
    install(laptop)
    write_key(laptop, laptop.extra_env["LAMBDA_API_KEY"], "KEDGE_LAMBDA_ENDPOINT=https://127.0.0.1:9")
    run_a_round(laptop)
    laptop.kedge("plan")
    change_stamp(laptop, at="2026-01-01T00:00:00Z")
    run_a_round(laptop)
    refusal = refused(laptop, "plan")
    assert "could not look at lambda" in refusal
    assert "fix: run `systemctl --user start kedge-reap.service`" in refusal
    assert "reap.env" not in refusal
    write_key(laptop, laptop.extra_env["LAMBDA_API_KEY"])
    run_a_round(laptop)
    laptop.kedge("plan")


def test_a_timer_with_another_state_folder_is_no_reaper(laptop: Laptop, tmp_path: Path) -> None:
    """For its ledger the machine is another computer's, which is only listed. Only a request moves the timer."""
    install(laptop)
    first, laptop.state = laptop.state, tmp_path / "other %d $x"
    refusal = refused(laptop, "plan")
    assert f"looks after the runs in {first}, not after those in {laptop.state}" in refusal
    assert f"launch with KEDGE_STATE_DIR={first}" in refusal
    assert f"looks after the runs in {first}" in refused(laptop, "reap", "--install")
    laptop.state = first
    laptop.kedge("plan")


def test_a_folder_that_has_lost_the_timer_has_no_reaper(laptop: Laptop, tmp_path: Path) -> None:
    """However new its last stamp is: the next round uses another folder, whose name may need quotes."""
    install(laptop)
    first, laptop.state = laptop.state, tmp_path / "other %d $x"
    laptop.kedge("reap", "--uninstall")
    laptop.kedge("reap", "--install")
    laptop.kedge("plan")
    other, laptop.state = laptop.state, first
    assert f"looks after the runs in {other}" in refused(laptop, "plan")


def test_a_timer_whose_state_folder_is_gone_may_be_moved(laptop: Laptop, tmp_path: Path) -> None:
    """It has no runs to forget."""
    install(laptop)
    shutil.rmtree(laptop.state)
    laptop.state = tmp_path / "other"
    assert "run `kedge reap --install` again" in refused(laptop, "plan")
    laptop.kedge("reap", "--install")
    laptop.kedge("plan")


def test_a_timer_without_rounds_is_no_reaper(laptop: Laptop) -> None:
    """For example because its interpreter was deleted with an environment."""
    install(laptop)
    change_stamp(laptop, python="/gone/bin/python")
    assert "/gone/bin/python is gone" in refused(laptop, "plan")
    change_stamp(laptop, python=sys.executable)
    laptop.kedge("plan")
    change_stamp(laptop, at="2026-01-01T00:00:00Z")
    assert "although it runs every 15 min" in refused(laptop, "plan")
    change_stamp(laptop, at="2026-01-01T00:00:00")
    assert "has made no round" in refused(laptop, "plan")


def test_a_failed_installation_keeps_the_last_stamp(laptop: Laptop, tmp_path: Path) -> None:
    """It has changed nothing: the existing timer goes on."""
    install(laptop)
    systemctl = (tmp_path / "bin" / "systemctl").read_text()
    break_systemd(tmp_path)
    laptop.kedge("reap", "--install", code=1)
    (tmp_path / "bin" / "systemctl").write_text(systemctl)
    laptop.kedge("plan")


def test_a_reaper_that_is_lost_after_the_launch_is_reported(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """By `status`, with what the next round lacks, and by the command that removes the timer."""
    install(laptop)
    run = launch_and_die(lambda_api, laptop)
    assert "nothing would end this machine's bill" not in laptop.kedge("status")
    write_key(laptop, "secret_nobodys")
    run_a_round(laptop)
    said = " ".join(laptop.kedge("status").split())
    assert "nothing would end this machine's bill if you forgot it: the last round of kedge-reap" in said
    assert "could not look at lambda" in said
    assert f"Only you can end the bill of {run} now" in " ".join(laptop.kedge("reap", "--uninstall").split())
