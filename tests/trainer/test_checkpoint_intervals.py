"""How often to checkpoint: the published formulas, and which trigger comes first."""

import math
import random
import statistics

import pytest

from tests.trainer import harness
from trainer.base.config import CheckpointSettings
from trainer.base.contract import read_contract
from trainer.base.signals import StopFlag
from trainer.group.distributed import ProcessGroup
from trainer.run.checkpoint_interval import daly_interval, young_interval
from trainer.run.control import UNMEASURED_SAVE_SECONDS, Control


@pytest.mark.parametrize(
    ("cost", "life", "young", "daly"),
    [
        (10.0, 7200.0, 379.47, 372.84),
        (60.0, 7200.0, 929.52, 889.95),
        (5.0, 3600.0, 189.74, 186.42),
        (3600.0, 7200.0, 7200.00, 5000.00),
    ],
)
def test_intervals_match_the_published_formulas(cost: float, life: float, young: float, daly: float) -> None:
    """Figures by hand from Young's sqrt(2 C M) and Daly's eq. 37, in seconds."""
    assert young_interval(cost_seconds=cost, life_seconds=life) == pytest.approx(young, abs=0.01)
    assert daly_interval(cost_seconds=cost, life_seconds=life) == pytest.approx(daly, abs=0.01)


def test_checkpoint_that_costs_two_lives_is_taken_once_per_life() -> None:
    """Where Daly's series ends (C >= 2 M), the interval is M."""
    assert daly_interval(cost_seconds=200.0, life_seconds=100.0) == 100.0
    assert daly_interval(cost_seconds=500.0, life_seconds=100.0) == 100.0


@pytest.mark.parametrize(("cost", "life"), [(10.0, 3600.0), (120.0, 1800.0)], ids=["cheap", "dear"])
def test_no_other_interval_wastes_less_time(cost: float, life: float) -> None:
    """In a simulation, half or twice Daly's interval takes longer on machines that fail."""
    daly = daly_interval(cost_seconds=cost, life_seconds=life)
    assert simulate(daly, cost, life) < min(simulate(daly / 2, cost, life), simulate(daly * 2, cost, life))


def simulate(interval: float, cost: float, life: float) -> float:
    """Return how long 200 hours of training take with random failures (a mean; each interval has the same failures)."""
    return statistics.mean(simulate_once(interval, cost, life, seed) for seed in range(8))


def simulate_once(interval: float, cost: float, life: float, seed: int) -> float:
    chance, elapsed, done = random.Random(seed), 0.0, 0.0
    loss = chance.expovariate(1 / life)
    while done < 200 * 3600:
        if loss >= interval + cost:
            loss, elapsed, done = loss - interval - cost, elapsed + interval + cost, done + interval
        else:
            elapsed += loss
            loss = chance.expovariate(1 / life)
    return elapsed


def make_control(save_seconds: float, environ: dict[str, str], **settings: float) -> Control:
    group = ProcessGroup(rank=0, size=1, device=harness.CPU)
    checkpoint = CheckpointSettings(**settings)  # type: ignore[arg-type]  # numbers only
    return Control(group, StopFlag(), read_contract(environ), checkpoint, lambda: save_seconds)


def test_shortest_requested_interval_counts() -> None:
    """The setting in seconds alone; with a known life also Daly's; with neither, never."""
    life = {"expected_life_hours": 2.0}
    assert make_control(10.0, {}).save_interval() == 600.0
    assert make_control(10.0, {}, every_seconds=0).save_interval() == math.inf
    assert make_control(10.0, {}, **life).save_interval() == pytest.approx(372.84, abs=0.01)
    assert make_control(10.0, {}, every_seconds=60, **life).save_interval() == 60.0
    assert make_control(60.0, {}, every_seconds=0, **life).save_interval() == pytest.approx(889.95, abs=0.01)


def test_expected_life_comes_from_the_setting_or_the_environment() -> None:
    """$KEDGE_EXPECTED_LIFE_HOURS if the setting is 0; before the first save its cost is an assumption."""
    environ = {"KEDGE_EXPECTED_LIFE_HOURS": "1"}
    assumed = daly_interval(cost_seconds=UNMEASURED_SAVE_SECONDS, life_seconds=3600)
    assert make_control(0.0, environ, every_seconds=0).save_interval() == pytest.approx(assumed)
    assert make_control(10.0, environ, expected_life_hours=2).save_interval() == pytest.approx(372.84, abs=0.01)
