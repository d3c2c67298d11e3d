"""The laptop's SSH key: registered once and kept. The API accepts it for creations only some time after it lists it."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import KedgeError, NoCapacityError
from tests.adapters.digitalocean.world import M1, RUN, DoWorld

DROPLETS = "/v2/droplets"
MINUTE = 60


def test_a_creation_is_retried_unchanged_until_the_new_key_is_accepted(new_do: DoWorld) -> None:
    """With the real delay of ten seconds. The request has the same attempt id, and all else is created once.

    fact: do-key-accepted-late
    """
    machine = new_do.provider().create(new_do.order())
    sent = new_do.api.calls.find("POST", DROPLETS)
    assert [call.status for call in sent[:-1]] == [422] * (len(sent) - 1)
    assert 2 <= len(sent) <= 8
    assert all(call.body == sent[0].body for call in sent)
    assert machine.address is not None
    assert len(new_do.api.droplets()) == 1
    for path in ("/v2/account/keys", "/v2/tags", "/v2/firewalls", "/v2/projects"):
        assert len(new_do.api.calls.find("POST", path)) == 1, path


def test_a_lost_answer_after_the_key_was_accepted_creates_no_second_droplet(new_do: DoWorld) -> None:
    """The droplet is found by its tag. No request follows the unclear one."""
    new_do.api.faults.drop_next("POST", DROPLETS)
    machine = new_do.provider().create(new_do.order())
    assert [str(each.id) for each in new_do.api.droplets()] == [machine.provider_id]
    assert [call.status for call in new_do.api.calls.find("POST", DROPLETS)][-1] is None


def test_a_key_that_is_never_accepted_fails_after_a_minute_and_leaves_no_machine(new_do: DoWorld) -> None:
    """It is not a lack of capacity, because the next offer would fail as well. It does not block the next command."""
    new_do.api.settings.key_seconds = 10 * MINUTE
    new_do.provider().release(RUN)
    begun = new_do.clock.now()
    with pytest.raises(KedgeError, match="can't be created") as caught:
        new_do.provider().create(new_do.order())
    assert not isinstance(caught.value, NoCapacityError)
    assert "SSH key" in caught.value.why
    assert MINUTE / 2 < (new_do.clock.now() - begun).total_seconds() < 2 * MINUTE
    assert list(new_do.provider().machines()) == []
    assert new_do.api.droplets() == []
    new_do.api.advance(10 * MINUTE)
    new_do.provider().create(new_do.order())
    assert len(new_do.api.droplets()) == 1


def test_the_key_is_kept_so_the_next_run_s_creation_is_sent_once(new_do: DoWorld) -> None:
    """If each run registered and removed it, each would first be refused."""
    new_do.provider().create(new_do.order())
    new_do.provider().destroy(M1)
    new_do.provider().release(RUN)
    new_do.api.calls.reset()
    new_do.provider().create(new_do.order(id="next-1-m1", run_id="next-1"))
    assert new_do.posts() == 1
    assert new_do.api.calls.find("POST", "/v2/account/keys") == []
    assert len(new_do.api.cloud.account.keys) == 1


def test_a_key_that_somebody_removed_is_registered_again(new_do: DoWorld) -> None:
    """The local record has the key, but the API does not know it."""
    new_do.provider().create(new_do.order())
    new_do.api.cloud.account.keys.clear()
    new_do.provider().create(new_do.order(2))
    assert len(new_do.api.droplets()) == 2
    assert len(new_do.api.cloud.account.keys) == 1
