"""The end of a machine at Lambda: the bill ends only when a termination was carried out."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import EndedBy, MachineState
from tests.adapters.lambdacloud.world import M1, RUN, TERMINATE, LambdaWorld


def make(lam: LambdaWorld) -> None:
    """Create the machine, and wait until it is up."""
    lam.provider().create(lam.order())
    lam.clock.sleep(timedelta(minutes=5))


@pytest.mark.parametrize("too_early", [400, 409])
@pytest.mark.parametrize("second", [200, 400, 500])
def test_a_machine_is_ended_in_its_first_seconds(
    lam: LambdaWorld, too_early: Literal[400, 409], second: Literal[200, 400, 500]
) -> None:
    """Lambda refuses a termination for some seconds, and a second termination fails.

    fact: lambda-not-endable-at-first; fact: lambda-second-terminate
    """
    lam.lam.settings.too_early, lam.lam.settings.second_termination = too_early, second
    lam.lam.settings.endable_seconds = 40
    lam.provider().create(lam.order())
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []
    assert lam.provider().describe(M1) is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_termination_that_was_accepted_but_not_carried_out_is_sent_again(
    lam: LambdaWorld, *, is_listed: bool
) -> None:
    """fact: lambda-accepted-is-not-done."""
    make(lam)
    lam.lam.faults.ignore_terminations(times=2, is_listed=is_listed)
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []


def test_after_a_lost_answer_to_a_termination_the_machine_is_polled(lam: LambdaWorld) -> None:
    """A poll that is answered with an HTML page is repeated. fact: lambda-502-on-polls."""
    make(lam)
    lam.lam.faults.drop_next(*TERMINATE)
    lam.lam.faults.fail_html("GET", "*", times=2)
    lam.provider().destroy(M1)
    assert lam.lam.instances() == []


@pytest.mark.parametrize("shown", [0, 600])
def test_an_ended_machine_is_gone_even_if_it_is_still_listed(lam: LambdaWorld, shown: float) -> None:
    """Lambda doesn't say how long a terminated instance is listed. Its run is released."""
    lam.lam.settings.shown_seconds = shown
    make(lam)
    lam.provider().destroy(M1)
    assert lam.provider().describe(M1) is None
    assert lam.provider().machines() == []
    lam.provider().release(RUN)
    lam.provider().destroy(M1)


def test_a_refused_termination_names_the_api_key(lam: LambdaWorld) -> None:
    """The key was revoked in the meantime."""
    make(lam)
    lam.lam.revoke()
    with pytest.raises(KedgeError) as caught:
        lam.provider().destroy(M1)
    assert "LAMBDA_API_KEY" in caught.value.fix


def test_a_preempted_machine_counts_until_it_is_terminated(lam: LambdaWorld) -> None:
    """fact: lambda-alert-bills: Lambda doesn't say that a preempted instance stops billing."""
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
    """Even if their names begin like kedge's, and the listing has several pages."""
    lam.lam.settings.page_size = 7
    lam.lam.crowd(30)
    make(lam)
    assert [machine.id for machine in lam.provider().sweep().machines] == [M1]
    lam.provider().destroy(M1)
    lam.provider().release(RUN)
    assert (len(lam.lam.foreign()), lam.lam.instances()) == (30, [])


@pytest.mark.parametrize("is_back", [False, True])
def test_a_run_whose_ssh_key_was_removed_in_the_console_can_be_ended(lam: LambdaWorld, *, is_back: bool) -> None:
    """Lambda reports no account id, but the API key that made the run belongs to this account."""
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
        assert lam.provider().describe(M1) is None, "no record is left that could belong to another account"


def test_a_new_api_key_knows_the_account_by_its_ssh_key(lam: LambdaWorld) -> None:
    """The old API key was revoked."""
    make(lam)
    lam.lam.cloud.account.api_keys.add("secret_new_0123")
    lam.environ["LAMBDA_API_KEY"] = "secret_new_0123"
    lam.provider().destroy(M1)
    lam.clock.sleep(timedelta(hours=1))
    assert lam.provider().describe(M1) is None
    lam.provider().release(RUN)
