"""After any sequence of failed attempts, the next command has exactly one droplet, with the run's tag.

KEDGE_FAULT_SEQUENCES is the number of sequences. docs/digitalocean-creation.md has the table of a full run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.adapters.digitalocean.doomed import Doomed, doomed_commands
from tests.adapters.digitalocean.sequences import KEY_LAGS, LAGS, STEPS, FaultSequence, run_sequence
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.samples import how_many

COUNT = how_many("KEDGE_FAULT_SEQUENCES", usual=12, all_of_them=60)
SEQUENCES = st.builds(
    FaultSequence,
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4).map(tuple),
    unknown_seconds=st.sampled_from(LAGS),
    unlisted_seconds=st.sampled_from(LAGS),
    key_seconds=st.sampled_from(KEY_LAGS),
)


@pytest.fixture(scope="module")
def doomed() -> Iterator[Doomed]:
    """Commands that get killed."""
    with doomed_commands() as commands:
        yield commands


@settings(
    max_examples=COUNT,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sequence=SEQUENCES)
def test_there_is_one_droplet_after_any_sequence_of_faults(
    do_api: DigitalOceanBox, doomed: Doomed, sequence: FaultSequence
) -> None:
    """Lost answers, errors before or after the effect, kills, races, late listings. After a teardown there is none."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-sequence-"))
    try:
        outcome = run_sequence(do_api, folder, doomed, sequence)
    finally:
        shutil.rmtree(folder)
    assert (outcome.droplets, outcome.owned, outcome.after) == (1, 1, [])


def test_the_same_seed_draws_the_same_sequences() -> None:
    """So the table of the full run can be reproduced."""
    import random

    from tests.adapters.digitalocean.sequences import draw

    first, second = (random.Random(7) for _ in range(2))
    assert [draw(first) for _ in range(20)] == [draw(second) for _ in range(20)]
