"""Nothing is left billing at a cloud: launch and teardown are killed at random points, and one `reap` clears up."""

from __future__ import annotations

import pytest

from tests.chaos.cloud_kills import draw, draw_with_machines, make_laptop, strike
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.samples import how_many

BLOWS = how_many("KEDGE_BLOWS", usual=7, all_of_them=24)
WITH_MACHINES = how_many("KEDGE_BLOWS_WITH_MACHINES", usual=1, all_of_them=4)
"""As many of the blows as fit into a test run; docs/chaos-digitalocean.md has all of them."""


@pytest.mark.parametrize("number", range(BLOWS))
def test_one_reap_clears_up_after_a_command_that_was_killed(do_api: DigitalOceanBox, number: int) -> None:
    """No droplet, no volume that wasn't to be kept, and a ledger that agrees; a second look finds nothing to do."""
    with make_laptop(do_api.environ) as laptop:
        story = strike(do_api, laptop, draw(number))
        assert story.left == (), story
        assert laptop.json("reap", "--dry-run", "--provider", "do")["left"] == []
    assert [bill.kind for bill in do_api.meter.billing()] in ([], ["volume"]), story


@pytest.mark.parametrize("number", range(WITH_MACHINES))
def test_one_reap_after_the_deadline_clears_up_with_machines(do_box: DigitalOceanBox, number: int) -> None:
    """The same where droplets boot, train, and are killed under a teardown."""
    with make_laptop(do_box.environ) as laptop:
        story = strike(do_box, laptop, draw_with_machines(number))
    assert story.left == (), story
    assert [bill.kind for bill in do_box.meter.billing()] in ([], ["volume"]), story


def test_blows_fall_into_both_commands_and_at_different_points() -> None:
    """The part that runs with every test run isn't always the same blow."""
    blows = [draw(number) for number in range(BLOWS)]
    assert {blow.during for blow in blows} == {"launch", "teardown"}
    assert len({blow.after_calls for blow in blows}) > BLOWS // 2
    assert blows == [draw(number) for number in range(BLOWS)]
