"""Nothing is left billing at Lambda: launches and teardowns are killed by SIGKILL, and one `reap` clears up."""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.cloud_kills import Blow, kill_at, make_laptop, unsettled
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.support.laptop import Laptop
from tests.support.samples import how_many
from tests.support.waiting import wait_until

BLOWS = how_many("KEDGE_LAMBDA_BLOWS", usual=6, all_of_them=24)
_MOST_CALLS = {"launch": 16, "teardown": 12}
"""A little more than either command makes before it waits."""
_LATER_SECONDS = 0.02
JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    deadline: 10m
    budget: 50
    resources: {infra: lambda, accelerators: H100}
"""
LAUNCH = ("launch", "--yes", "--without-reaper", "--detach")


def draw(number: int) -> Blow:
    """Draw a blow; the same number is the same blow, as far as a computer's speed allows."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    calls, later = random.randint(1, _MOST_CALLS[during]), random.uniform(0, _LATER_SECONDS)
    return Blow(number=number, during=during, after_calls=calls, later_seconds=later, slow=random.random() < 1 / 3)


def slow_down(lam: LambdaBox) -> None:
    """Let instances appear late, be endable later, and end late."""
    lam.settings.not_found_seconds = lam.settings.unlisted_seconds = 2
    lam.settings.endable_seconds, lam.settings.ending_seconds = 3, 2


def launched(lam: LambdaBox, laptop: Laptop) -> str:
    """Leave a run whose machine is there, and that nobody follows; return the run."""
    process = laptop.start(*LAUNCH)
    wait_until(lam.instances)
    process.kill()
    process.communicate()
    ledger = laptop.ledger()
    (run,) = ledger.runs(live_only=True)
    ledger.close()
    return run.run_id


@pytest.mark.parametrize("number", range(BLOWS))
def test_one_reap_clears_up_after_a_command_that_was_killed(lambda_api: LambdaBox, number: int) -> None:
    """No instance, and a ledger that agrees; a second look finds nothing to do."""
    blow = draw(number)
    with make_laptop(lambda_api.environ) as laptop:
        laptop.write_job(JOB)
        command = (
            LAUNCH if blow.during == "launch" else ("teardown", launched(lambda_api, laptop), "--yes", "--no-fetch")
        )
        if blow.slow:
            slow_down(lambda_api)
        lambda_api.calls.reset()
        kill_at(lambda_api.calls, laptop.start(*command), blow)
        done = laptop.drive("reaping_later.py", "0", "lambda")
        assert done.returncode == 0, done.stderr
        assert lambda_api.instances() == []
        assert unsettled(laptop) == []
        assert laptop.json("reap", "--dry-run", "--provider", "lambda")["left"] == []


def test_blows_fall_into_both_commands_and_at_different_points() -> None:
    """The part that runs with every test run isn't always the same blow."""
    blows = [draw(number) for number in range(BLOWS)]
    assert {blow.during for blow in blows} == {"launch", "teardown"}
    assert len({blow.after_calls for blow in blows}) > BLOWS // 2
