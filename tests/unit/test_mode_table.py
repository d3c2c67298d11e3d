"""The sums of `kedge plan --all-modes`, and what `--offers` says of a mode on a machine."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.core.job import Job
from orchestrator.core.offer import Accelerators, Offer
from orchestrator.core.planning.expecting import Source, expect_of
from orchestrator.core.planning.mode_table import ModeRow, add_up, estimate
from orchestrator.core.task import Basis, Expect

HOUR = timedelta(hours=1)
OFFER = Offer(
    provider="do",
    region="tor1",
    zone="",
    instance_type="mi300x",
    accelerators=Accelerators(name="mi300x"),
    gpu_memory_gib=192,
    cpus=20,
    memory_gib=240,
    disk_gib=720,
    usd_per_hour=Decimal("1.99"),
    disk_usd_per_hour=Decimal("0.01"),
)


def row(mode: str, usd: str | None, runs: int) -> ModeRow:
    return ModeRow(mode=mode, runs=runs, usd=None if usd is None else Decimal(usd))


FRESNEL = (row("validate", "0.17", 6), row("fast", "4", 4), row("standard", "12", 2), row("full", "24", 1))


def test_the_rest_of_the_budget_is_its_buffer() -> None:
    """$100: validation 1, fast x4 16, standard x2 24, final 24, buffer 35."""
    table = add_up("fresnel", FRESNEL, Decimal(100), {})
    assert [round(each.planned_usd or 0) for each in table.rows] == [1, 16, 24, 24]
    assert [round(each.total_usd or 0) for each in table.rows] == [1, 17, 41, 65]
    assert (table.planned_usd, table.buffer_usd) == (Decimal("65.02"), Decimal("34.98"))
    assert add_up("fresnel", FRESNEL, Decimal(60), {}).buffer_usd == Decimal("-5.02")
    assert add_up("fresnel", FRESNEL, None, {}).buffer_usd is None


def test_an_unknown_cost_makes_every_later_sum_unknown_unless_no_run_is_planned() -> None:
    """No number is guessed."""
    table = add_up("fresnel", (FRESNEL[0], row("custom", None, 0), FRESNEL[1]), Decimal(100), {})
    assert table.planned_usd == Decimal("17.02")
    table = add_up("fresnel", (FRESNEL[0], row("custom", None, 2), FRESNEL[1]), Decimal(100), {})
    assert [each.planned_usd for each in table.rows] == [Decimal("1.02"), None, Decimal(16)]
    assert [each.total_usd for each in table.rows] == [Decimal("1.02"), None, None]
    assert (table.planned_usd, table.buffer_usd) == (None, None)


@pytest.mark.parametrize(
    ("usual", "basis", "duration", "source", "says"),
    [
        (HOUR, Basis.PUBLISHED, HOUR, Source.RUNS, "measured, in earlier runs of this job and mode on g5"),
        (None, Basis.PUBLISHED, 2 * HOUR, Source.PUBLISHED, "the job file's `expect`, published"),
        (None, Basis.ESTIMATED, 2 * HOUR, Source.ESTIMATED, "the job file's `expect`, estimated"),
        (None, Basis.MEASURED, 2 * HOUR, Source.FILE, "the job file's `expect`, measured"),
        (None, None, 2 * HOUR, Source.FILE, "the job file's `expect`"),
    ],
)
def test_a_measurement_beats_the_job_file(
    usual: timedelta | None, basis: Basis | None, duration: timedelta, source: Source, says: str
) -> None:
    """Only what this computer's runs took is shown as measured."""
    job = Job(name="a", expect=Expect(duration=2 * HOUR, basis=basis))
    found = expect_of(job, usual, "g5")
    assert (found.duration, found.source, found.says) == (duration, source, says)


def test_a_time_that_nobody_knows_is_unknown() -> None:
    """It is neither zero nor that of another type."""
    assert expect_of(Job(name="a"), None, "g5").says == (
        "unknown until a run has been measured on g5; nothing says whether the deadline is enough"
    )
    assert estimate(Job(name="a"), OFFER, None, None, Source.UNKNOWN, same_gpus=False) is None


def test_an_estimate_is_the_time_at_this_machines_price() -> None:
    """For all machines of the run, disks included; what runs there took is nobody else's time."""
    job = Job(name="a", num_nodes=2)
    found = estimate(job, OFFER, None, 3 * HOUR, Source.PUBLISHED, same_gpus=True)
    assert found is not None
    assert (found.usd, found.source, found.same_gpus) == (Decimal(12), Source.PUBLISHED, True)
    found = estimate(job, OFFER, HOUR, 3 * HOUR, Source.PUBLISHED, same_gpus=True)
    assert found is not None
    assert (found.usd, found.source, found.same_gpus) == (Decimal(4), Source.RUNS, False)
