"""Nothing is left billing at Lambda: launches and teardowns are killed with SIGKILL, and one `reap` cleans up."""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.cloud_kills import Kill, kill_at, make_laptop, unsettled
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.support.laptop import Laptop
from tests.support.samples import how_many
from tests.support.waiting import wait_until

KILLS = how_many("KEDGE_LAMBDA_KILLS", usual=6, all_of_them=24)
_MOST_CALLS = {"launch": 16, "teardown": 12}
"""A few more calls than either command makes before it waits."""
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


def draw(number: int) -> Kill:
    """Draw a kill; the same number gives the same kill, as far as the computer's speed allows."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    calls, later = random.randint(1, _MOST_CALLS[during]), random.uniform(0, _LATER_SECONDS)
    return Kill(number=number, during=during, after_calls=calls, later_seconds=later, slow=random.random() < 1 / 3)


def slow_down(lam: LambdaBox) -> None:
    """Let instances appear late, become endable late, and end late."""
    lam.settings.not_found_seconds = lam.settings.unlisted_seconds = 2
    lam.settings.endable_seconds, lam.settings.ending_seconds = 3, 2


def launched(lam: LambdaBox, laptop: Laptop) -> str:
    """Launch a run, kill the command when the machine exists, and return the run."""
    process = laptop.start(*LAUNCH)
    wait_until(lam.instances)
    process.kill()
    process.communicate()
    ledger = laptop.ledger()
    (run,) = ledger.runs(live_only=True)
    ledger.close()
    return run.run_id


@pytest.mark.parametrize("number", range(KILLS))
def test_one_reap_cleans_up_after_a_killed_command(lambda_api: LambdaBox, number: int) -> None:
    """No instance, and a ledger that agrees. A second reap finds nothing to do."""
    kill = draw(number)
    with make_laptop(lambda_api.environ) as laptop:
        laptop.write_job(JOB)
        command = (
            LAUNCH if kill.during == "launch" else ("teardown", launched(lambda_api, laptop), "--yes", "--no-fetch")
        )
        if kill.slow:
            slow_down(lambda_api)
        lambda_api.calls.reset()
        kill_at(lambda_api.calls, laptop.start(*command), kill)
        done = laptop.drive("reaping_later.py", "0", "lambda")
        assert done.returncode == 0, done.stderr
        assert lambda_api.instances() == []
        assert unsettled(laptop) == []
        assert laptop.json("reap", "--dry-run", "--provider", "lambda")["left"] == []


def test_kills_hit_both_commands_at_different_points() -> None:
    """The few kills of a normal test run differ from each other."""
    kills = [draw(number) for number in range(KILLS)]
    assert {kill.during for kill in kills} == {"launch", "teardown"}
    assert len({kill.after_calls for kill in kills}) > KILLS // 2
