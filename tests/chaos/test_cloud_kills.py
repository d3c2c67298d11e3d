"""Nothing is left billing at a cloud: launch and teardown are killed at random points, and `reap` cleans up."""

from __future__ import annotations

import pytest

from tests.chaos.cloud_kills import draw, draw_with_machines, kill_and_reap, make_laptop
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.samples import how_many

KILLS = how_many("KEDGE_CLOUD_KILLS", usual=7, all_of_them=24)
WITH_MACHINES = how_many("KEDGE_CLOUD_KILLS_WITH_MACHINES", usual=1, all_of_them=4)
"""As many kills as fit into a test run; docs/chaos-digitalocean.md has all of them."""


@pytest.mark.parametrize("number", range(KILLS))
def test_reap_cleans_up_after_a_killed_command(do_api: DigitalOceanBox, number: int) -> None:
    """No droplet, no volume but the kept one, and a ledger that agrees. A further reap finds nothing to do.

    A refused creation whose answer nobody has read takes two: the first one can't know that no droplet follows.
    """
    with make_laptop(do_api.environ) as laptop:
        result = kill_and_reap(do_api, laptop, draw(number))
        assert result.left == (), result
        assert laptop.json("reap", "--dry-run", "--provider", "do")["left"] == []
    assert [bill.kind for bill in do_api.meter.billing()] in ([], ["volume"]), result


@pytest.mark.parametrize("number", range(WITH_MACHINES))
def test_one_reap_after_the_deadline_cleans_up_with_machines(do_box: DigitalOceanBox, number: int) -> None:
    """The same with droplets that boot and train, and that are killed during a teardown."""
    with make_laptop(do_box.environ) as laptop:
        result = kill_and_reap(do_box, laptop, draw_with_machines(number))
    assert result.left == (), result
    assert [bill.kind for bill in do_box.meter.billing()] in ([], ["volume"]), result


def test_kills_hit_both_commands_at_different_points() -> None:
    """The few kills of a normal test run differ from each other."""
    kills = [draw(number) for number in range(KILLS)]
    assert {kill.during for kill in kills} == {"launch", "teardown"}
    assert len({kill.after_calls for kill in kills}) > KILLS // 2
    assert kills == [draw(number) for number in range(KILLS)]
