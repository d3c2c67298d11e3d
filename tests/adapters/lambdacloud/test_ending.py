"""The end of a machine at Lambda: only a termination that was carried out ends the bill."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import EndedBy, MachineState
from tests.adapters.lambdacloud.world import M1, RUN, TERMINATE, LambdaWorld


def make(lam: LambdaWorld) -> None:
    """Make the machine, and let it come up."""
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=5))


@pytest.mark.parametrize("too_early", [400, 409])
@pytest.mark.parametrize("second", [200, 400, 500])
def test_a_machine_is_ended_in_its_first_seconds(
    lam: LambdaWorld, too_early: Literal[400, 409], second: Literal[200, 400, 500]
) -> None:
    """Lambda refuses that for some seconds, and a termination that is repeated fails.

    fact: lambda-not-endable-at-first; fact: lambda-second-terminate
    """
    lam.lam.settings.too_early, lam.lam.settings.second_termination = too_early, second
    lam.lam.settings.endable_seconds = 40
    lam.provider().create(lam.order())
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []
    assert lam.provider().describe(M1) is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_termination_that_was_accepted_and_not_carried_out_is_asked_for_again(
    lam: LambdaWorld, *, is_listed: bool
) -> None:
    """fact: lambda-accepted-is-not-done."""
    make(lam)
    lam.lam.faults.ignore_terminations(times=2, is_listed=is_listed)
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []


def test_a_termination_whose_answer_is_lost_is_looked_at(lam: LambdaWorld) -> None:
    """And so is a look that is answered with a page of HTML. fact: lambda-502-on-polls."""
    make(lam)
    lam.lam.faults.drop_next(*TERMINATE)
    lam.lam.faults.fail_html("GET", "*", times=2)
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []


@pytest.mark.parametrize("shown", [0, 600])
def test_an_ended_machine_is_gone_whether_it_is_still_listed_or_not(lam: LambdaWorld, shown: float) -> None:
    """For how long it is listed as terminated nobody says; its run is released."""
    lam.lam.settings.shown_seconds = shown
    make(lam)
    lam.provider().destroy(M1)
    assert lam.provider().describe(M1) is None
    assert lam.provider().machines() == []
    lam.provider().release(RUN)
    lam.provider().destroy(M1)


def test_who_may_not_end_a_machine_is_told_so(lam: LambdaWorld) -> None:
    """A key that was revoked in the middle."""
    make(lam)
    lam.lam.revoke()
    with pytest.raises(KedgeError) as caught:
        lam.provider().destroy(M1)
    assert "LAMBDA_API_KEY" in caught.value.fix


def test_a_machine_that_was_taken_away_counts_until_it_is_ended(lam: LambdaWorld) -> None:
    """fact: lambda-alert-bills: of a preempted one nobody says that it doesn't."""
    make(lam)
    (instance,) = lam.lam.instances()
    lam.lam.strike(instance, "preempted")
    (machine,) = lam.provider().machines()
    assert machine.state is MachineState.ENDING
    end = lam.provider().why_ended(M1)
    assert end is not None
    assert end.by is EndedBy.PROVIDER
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []


def test_other_peoples_instances_are_left_alone(lam: LambdaWorld) -> None:
    """Though their names begin like kedge's, and the listing has pages."""
    lam.lam.settings.page_size = 7
    lam.lam.crowd(30)
    make(lam)
    assert [machine.id for machine in lam.provider().sweep().machines] == [M1]
    lam.provider().destroy(M1)
    lam.provider().release(RUN)
    assert (len(lam.lam.foreign()), lam.lam.instances()) == (30, [])


@pytest.mark.parametrize("is_back", [False, True])
def test_a_run_whose_ssh_key_was_removed_in_the_console_comes_to_its_end(lam: LambdaWorld, *, is_back: bool) -> None:
    """Lambda names accounts in no way, but the API key that has made the run is one of this account."""
    make(lam)
    lam.lam.cloud.account.keys.clear()
    if is_back:
        lam.provider().create(lam.order(2))
        lam.provider().destroy(f"{RUN}-m2")
    lam.provider().destroy(M1)
    lam.clock.sleep(timedelta(hours=1))
    assert lam.provider().describe(M1) is None
    lam.provider().release(RUN)
    with lam.other_account():
        assert lam.provider().describe(M1) is None, "nothing is left to be mistaken for another account's"


def test_a_new_api_key_knows_the_account_by_its_ssh_key(lam: LambdaWorld) -> None:
    """The old one was revoked."""
    make(lam)
    lam.lam.cloud.account.api_keys.add("secret_new_0123")
    lam.environ["LAMBDA_API_KEY"] = "secret_new_0123"
    lam.provider().destroy(M1)
    lam.clock.sleep(timedelta(hours=1))
    assert lam.provider().describe(M1) is None
    lam.provider().release(RUN)
