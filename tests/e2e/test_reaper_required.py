"""Launches where only `kedge reap` ends a forgotten machine's bill; a stand-in for systemd runs the real unit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.e2e.reaper import (
    break_systemd,
    install,
    launch_and_die,
    refused,
    run_a_round,
    with_systemd,
    write_key,
    write_settings,
)
from tests.support.laptop import Laptop


@pytest.fixture
def laptop(lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path) -> Laptop:
    """A user's computer with a Lambda account and a user systemd."""
    return with_systemd(lambda_api, laptop, tmp_path)


def test_a_launch_without_a_reaper_is_refused_with_what_to_do(
    lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path
) -> None:
    """Before anything is created; the refusal names each of the three ways out, and what one of them still lacks."""
    said = refused(laptop, "launch", "--yes")
    assert "no kedge-reap timer is installed on this computer" in said
    assert all(way in said for way in ("kedge reap --install", "reaper: elsewhere", "--without-reaper"))
    assert "kedge/reap.env" in laptop.kedge("reap", "--install")
    assert "could not look at lambda: LAMBDA_API_KEY isn't set" in refused(laptop, "plan")
    (tmp_path / "bin" / "kedge-reap.timer.running").unlink()
    assert "isn't running" in refused(laptop, "plan")
    assert lambda_api.instances() == []


def test_the_plan_says_which_reaper_ends_the_bill(laptop: Laptop) -> None:
    """And what its provider's machines can't do themselves."""
    assert "It looks after lambda." in install(laptop)
    said = " ".join(laptop.kedge("plan").split())
    assert "the timer kedge-reap of this computer ends this machine's bill" in said
    assert "only Lambda's API ends an instance's bill" in said
    laptop.kedge("reap", "--uninstall")
    refused(laptop, "plan")
    said = " ".join(laptop.kedge("plan", "--without-reaper").split())
    assert "only you can end this machine's bill" in said


@pytest.mark.parametrize(("key", "said"), [("", "LAMBDA_API_KEY isn't set"), ("secret_nobodys", "invalid-api-key")])
def test_a_timer_whose_key_opens_nothing_is_no_reaper(laptop: Laptop, key: str, said: str) -> None:
    """It has no key, or a revoked one; the next step in the refusal fixes it."""
    write_key(laptop, key)
    assert "! Its first round could not look at lambda" in laptop.kedge("reap", "--install")
    refusal = refused(laptop, "plan")
    assert said in refusal
    assert "reap.env (mode 0600), then run `systemctl --user start kedge-reap.service`" in refusal
    write_key(laptop, laptop.extra_env["LAMBDA_API_KEY"])
    run_a_round(laptop)
    laptop.kedge("plan")


def test_a_timer_with_another_accounts_key_is_no_reaper(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """Its rounds succeed, but in another account. Two keys of one account are matched by the account's SSH keys."""
    install(laptop)
    laptop.extra_env["LAMBDA_API_KEY"] = "secret_another"
    lambda_api.cloud.account.api_keys.add("secret_another")
    assert "a key of another lambda account" in refused(laptop, "plan")
    write_key(laptop, "secret_another")
    run_a_round(laptop)
    laptop.kedge("plan")


def test_a_timer_that_ends_with_the_login_is_no_reaper(laptop: Laptop, tmp_path: Path) -> None:
    """A machine's deadline may be after the logout."""
    (tmp_path / "bin" / "logs-out").touch()
    install(laptop)
    assert "run `loginctl enable-linger`" in refused(laptop, "plan")


def test_a_relative_state_folder_is_the_same_for_the_timer(laptop: Laptop, tmp_path: Path) -> None:
    """Systemd starts commands in another folder."""
    laptop.state = Path(os.path.relpath(tmp_path / "state", laptop.home))
    install(laptop)
    laptop.kedge("plan")


def test_a_round_by_hand_does_not_prove_a_timer(laptop: Laptop) -> None:
    """Only the timer's own rounds do."""
    write_key(laptop, "")
    laptop.kedge("reap", "--install")
    laptop.kedge("reap", "--yes")
    refused(laptop, "plan")


def test_an_installation_succeeds_although_a_colleague_s_machine_bills(
    lambda_api: LambdaBox, laptop: Laptop, tmp_path: Path
) -> None:
    """Its first round leaves that machine alone, and exits 5 because it bills."""
    mine, laptop.state = laptop.state, tmp_path / "colleague"
    launch_and_die(lambda_api, laptop, "--without-reaper")
    laptop.state = mine
    said = install(laptop)
    assert "something may still be billing" in said
    assert "It looks after lambda." in said
    assert "failed" not in said


def test_each_refusal_without_systemd_names_a_step_towards_a_launch(laptop: Laptop, tmp_path: Path) -> None:
    """As on macOS and in containers, where cron runs the rounds, which leave no stamp."""
    break_systemd(tmp_path)
    assert "then run `kedge reap --install`" in refused(laptop, "plan")
    laptop.kedge("reap", "--install", code=1)
    said = " ".join(laptop.errors.split())
    assert "let cron run it: `*/15 * * * * kedge reap --yes`" in said
    assert "then write `reaper: elsewhere` into your settings" in said
    write_settings(tmp_path, "reaper: elsewhere\n")
    laptop.kedge("plan")


def test_settings_say_that_the_reaper_is_elsewhere(laptop: Laptop, tmp_path: Path) -> None:
    """For all jobs; any other value is refused by name."""
    settings = write_settings(tmp_path, "reaper: elsewhere\n")
    assert "a reaper elsewhere ends this machine's bill" in " ".join(laptop.kedge("plan").split())
    settings.write_text("reaper: here\n")
    assert "reaper" in refused(laptop, "plan")


def test_the_timer_runs_reap_and_contains_no_key(laptop: Laptop, tmp_path: Path) -> None:
    """More programs than its owner's can read a unit's file."""
    laptop.kedge("reap", "--install")
    units = tmp_path / "config" / "systemd" / "user"
    service = (units / "kedge-reap.service").read_text()
    assert "-m orchestrator.cli reap --yes\n" in service
    assert "EnvironmentFile=-%E/kedge/reap.env\n" in service
    assert laptop.extra_env["LAMBDA_API_KEY"] not in service
    assert f"KEDGE_LAMBDA_ENDPOINT={laptop.extra_env['KEDGE_LAMBDA_ENDPOINT']}" in service
    assert "TimeoutStartSec=30min\n" in service, "a round that hangs would keep all others from starting"
    timer = (units / "kedge-reap.timer").read_text()
    assert "OnCalendar=*:0/15\nPersistent=yes\n" in timer, "a round that was slept through runs on waking"
    assert stat.S_IMODE((units / "kedge-reap.service").stat().st_mode) == 0o600
    laptop.kedge("reap", "--uninstall")
    assert list(units.glob("kedge-reap*")) == []


def test_the_choice_to_launch_without_a_reaper_holds_for_the_whole_run(lambda_api: LambdaBox, laptop: Laptop) -> None:
    """It is recorded in the run, so that a later machine of the run needs no new answer."""
    run = launch_and_die(lambda_api, laptop, "--without-reaper")
    ledger = laptop.ledger()
    record = ledger.run(run)
    ledger.close()
    assert record is not None
    assert record.spec.without_reaper
    assert "nothing would end this machine's bill" not in laptop.kedge("status")
