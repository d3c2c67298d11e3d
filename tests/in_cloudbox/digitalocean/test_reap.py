"""`kedge reap` at DigitalOcean: droplets in any state, by tags alone, until the API confirms that they are gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from orchestrator.core.actions import StartCommand
from orchestrator.core.ledger import IntentState
from orchestrator.core.task import SupervisorKind
from tests.chaos.cloud_kills import HOUR, KEPT, launch_and_die, leftovers, make_laptop, reap_once, unsettled, write_job
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.laptop import Laptop


@pytest.fixture
def home(do_api: DigitalOceanBox) -> Iterator[Laptop]:
    """A laptop with an account."""
    with make_laptop(do_api.environ) as laptop:
        write_job(laptop)
        yield laptop


@pytest.fixture
def guard(do_api: DigitalOceanBox) -> Iterator[Laptop]:
    """Another computer with the same account, without records of any run: it runs `infra/reaper`."""
    with make_laptop(do_api.environ) as laptop:
        yield laptop


def test_a_lost_laptop_s_droplet_is_ended_after_its_deadline(
    do_api: DigitalOceanBox, home: Laptop, guard: Laptop
) -> None:
    """The external guard ends it, with all the run's resources, by its tags; before the deadline it touches nothing."""
    launch_and_die(home)
    shutil.rmtree(home.state)
    assert len(do_api.droplets()) == 1
    assert "Nothing bills" in guard.kedge("reap", "--all", "--yes", "--provider", "do")
    assert len(do_api.droplets()) == 1
    done = reap_once(guard, "--all", seconds_later=HOUR)
    assert done.returncode == 0, done.stderr
    assert leftovers(do_api, guard) == []
    assert [volume["name"] for volume in do_api.client().volumes.list()["volumes"]] == KEPT
    assert guard.json("status", "--all") == []


def test_another_laptop_s_droplet_is_named_where_it_is_not_asked_for(
    do_api: DigitalOceanBox, home: Laptop, guard: Laptop
) -> None:
    """Without --all it is left, and may be billing: exit 5."""
    run = launch_and_die(home)
    done = reap_once(guard, seconds_later=HOUR)
    assert done.returncode == 5
    assert f"machine {run}-m1" in done.stdout
    assert "--all" in done.stdout
    assert len(do_api.droplets()) == 1


def test_a_droplet_that_the_api_does_not_delete_is_not_reported_as_gone(do_api: DigitalOceanBox, home: Laptop) -> None:
    """A failed deletion leaves the droplet billing: exit 5, and the next round ends it."""
    launch_and_die(home)
    do_api.faults.fail_next("DELETE", "/v2/droplets/{droplet_id}", times=None)
    done = reap_once(home)
    assert done.returncode == 5, done.stdout
    assert len(do_api.droplets()) == 1
    assert unsettled(home)
    do_api.faults.clear()
    assert reap_once(home).returncode == 0
    assert leftovers(do_api, home) == []


def test_a_droplet_that_comes_back_is_ended_again(do_api: DigitalOceanBox, home: Laptop) -> None:
    """It counts as gone only when the API confirms that at a second query."""
    launch_and_die(home)
    do_api.faults.reappear_next()
    reap_once(home)
    assert reap_once(home).returncode == 0
    assert leftovers(do_api, home) == []


def test_a_powered_off_droplet_is_ended_too(do_api: DigitalOceanBox, home: Laptop, guard: Laptop) -> None:
    """Its deadline powered it off; off, it bills as much as on."""
    launch_and_die(home)
    (droplet,) = do_api.droplets()
    do_api.client().droplet_actions.post(droplet.id, body={"type": "power_off"})
    assert reap_once(guard, "--all", seconds_later=HOUR).returncode == 0
    assert do_api.droplets() == []


def test_a_droplet_that_is_off_during_its_run_is_ended_at_once(do_api: DigitalOceanBox, home: Laptop) -> None:
    """By the ledger its run is running, before its deadline: while on it is left alone, when off it is ended."""
    run = launch_and_die(home)
    ledger = home.ledger()
    now = datetime.now(UTC)
    start = StartCommand(machine_id=f"{run}-m1", supervisor=SupervisorKind.TMUX, resumes=False)
    ledger.close_intent(ledger.intend(run, start, now), IntentState.DONE, now)
    ledger.close()
    assert reap_once(home).returncode == 0
    (droplet,) = do_api.droplets()
    do_api.client().droplet_actions.post(droplet.id, body={"type": "power_off"})
    done = reap_once(home)
    assert done.returncode == 0, done.stderr
    assert "powered off" in done.stdout
    assert do_api.droplets() == []


def test_a_droplet_without_its_name_is_no_all_clear(do_api: DigitalOceanBox, home: Laptop) -> None:
    """It has kedge's mark and bills: nobody can tell whose it is, so the user has to decide."""
    body = {"name": "odd", "region": "tor1", "size": "s-2vcpu-4gb", "image": "ubuntu-24-04-x64", "tags": ["kedge"]}
    odd = do_api.client().droplets.create(body)["droplet"]["id"]
    done = reap_once(home)
    assert done.returncode == 5
    assert f"droplet {odd}" in done.stdout
    assert len(do_api.droplets()) == 1


def test_a_refused_token_is_no_all_clear(home: Laptop) -> None:
    """With an expired token, a guard would check nothing for ever."""
    home.extra_env["DIGITALOCEAN_ACCESS_TOKEN"] = "dop_v1_expired"
    home.kedge("reap", "--yes", code=5)
    assert "do was not queried" in home.errors
