"""find-lr and find-batch: settings from measurements."""

import math
import resource
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import torch

from tests.trainer import harness
from tests.trainer.learners import make_learner_of, random_batches
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Moment
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.find.finders import search_largest
from trainer.find.lr_finder import LearningRateSweep, suggest_rate, sweep_learner, sweep_rates


def parabola_loss(rate: float) -> float:
    """A loss that falls until 1e-2 and rises beyond, as in a sweep of rates."""
    return 1.0 + (math.log10(rate) + 2) ** 2


def test_rates_grow_by_the_same_factor_and_end_when_the_loss_diverges() -> None:
    """From 1e-6 on, until the loss is more than 4 times the best smoothed loss."""
    sweep = sweep_rates(lambda rate: 1.0 if rate < 1e-3 else 1000.0, lowest=1e-6, highest=1.0, steps=200)
    factors = [later / earlier for earlier, later in zip(sweep.rates, sweep.rates[1:], strict=False)]
    assert sweep.rates[0] == pytest.approx(1e-6)
    assert factors == pytest.approx([factors[0]] * len(factors))
    assert 1e-4 < sweep.rates[-1] < 2e-3
    assert max(sweep.losses) <= 4 * min(sweep.losses)


def test_loss_that_is_not_finite_ends_the_sweep() -> None:
    """NaN compares with nothing: the sweep ends before it."""
    sweep = sweep_rates(lambda rate: math.nan if rate > 1e-3 else 1.0)
    assert all(math.isfinite(loss) for loss in sweep.losses)
    assert sweep.rates[-1] <= 1e-3


def test_suggestions_are_read_off_the_curve() -> None:
    """Steepest where the loss falls most, the valley on the fall, a tenth of the rate with the lowest loss."""
    rates = [10 ** (-6 + number / 20) for number in range(101)]
    losses = [2.0 - math.tanh(3 * (math.log10(rate) + 4)) + (rate / 1e-2) ** 2 for rate in rates]
    suggestion = suggest_rate(LearningRateSweep(rates=rates, losses=losses))
    assert suggestion.steepest == pytest.approx(1e-4, rel=0.2)
    lowest = rates[losses.index(min(losses))]
    assert suggestion.before_divergence == pytest.approx(lowest / 10)
    assert rates[0] < suggestion.valley < lowest


def test_curve_of_a_few_points_is_refused() -> None:
    """Diverged at once: there is no suggestion, and the fix is a lower first rate."""
    with pytest.raises(BadRequestError, match="diverged after 3 steps") as caught:
        suggest_rate(LearningRateSweep(rates=[1.0, 2.0, 3.0], losses=[1.0, 1.0, 1.0]))
    assert "--lowest" in caught.value.fix


def test_sweep_leaves_weights_optimizer_and_randomness_as_they_were() -> None:
    """A learner in mid-training: every tensor and the random state are the same after the sweep."""
    learner = make_learner_of(("ema_decay=0.9",))
    batches = random_batches(batch_size=8)
    learner.step(next(batches), rate=1e-3, moment=Moment(step=0))
    before = harness.copy_state(learner.state())
    rng = torch.get_rng_state()
    sweep = sweep_learner(learner, batches, highest=10.0, steps=40)
    assert len(sweep.rates) > 10
    harness.assert_equal(learner.state(), before, "learner")
    assert torch.equal(torch.get_rng_state(), rng)


def test_find_lr_draws_its_curve_and_names_three_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On digits: a picture, three rates between the bounds, nothing else in the folder and no checkpoint."""
    folder = tmp_path / "output"
    argv = ["find-lr", "digits", *harness.settings_args(harness.SMALL), "--output-dir", str(folder), "--steps", "60"]
    assert main(argv, environ={}, stop=StopFlag()) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("steepest", "valley", "before divergence", "--set optimizer.learning_rate="))
    assert [path.name for path in folder.iterdir()] == ["lr-finder.png"]
    height, width, _ = matplotlib.image.imread(folder / "lr-finder.png").shape
    assert min(height, width) > 500


def test_find_batch_names_the_largest_that_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If memory isn't the limit, --most is, and the output says so."""
    argv = ["find-batch", "digits", *harness.settings_args(harness.SMALL), "--most", "32"]
    argv += ["--output-dir", str(tmp_path / "output")]
    assert main(argv, environ={}, stop=StopFlag()) == 0
    assert "a micro-batch of 32 fits on cpu (the largest size tried): --set micro_batch=32" in capsys.readouterr().out
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("room", "most", "found"),
    [(37, 4096, (37, 38)), (1, 64, (1, 2)), (0, 64, (0, 1)), (2000, 100, (100, 101)), (96, 96, (96, 97))],
)
def test_search_finds_the_largest_size(room: int, most: int, found: tuple[int, int]) -> None:
    """Not only powers of two are tried; the answer is next to the first size that didn't fit."""
    assert search_largest(lambda size: size <= room, most=most, refine=True) == found


def test_search_for_a_large_size_stops_at_a_thirtieth() -> None:
    """16 sizes are tried to find one among 4,096; without refinement 13, and the answer is a power of two."""
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= 3000

    fitting, failing = search_largest(fits, most=4096, refine=True)
    assert fitting <= 3000 < failing
    assert failing - fitting <= 3000 / 30
    assert len(tried) <= 18
    assert search_largest(lambda size: size <= 3000, most=4096, refine=False) == (2048, 4096)


def test_find_batch_under_torchrun_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """If one process ran out of memory, the others would wait for ever."""
    assert main(["find-batch", "digits"], environ={"WORLD_SIZE": "2"}, stop=StopFlag()) == 2
    assert "start it without torchrun" in capsys.readouterr().err


def test_find_batch_finds_the_limit_of_the_address_space(tmp_path: Path) -> None:
    """Under RLIMIT_AS a real allocator refuses; the largest size that it allowed is named."""
    program = harness.under_address_limit(
        extra_bytes=400 << 20,
        call="from trainer.cli import main; from trainer.base.signals import StopFlag; "
        f"code = main(['find-batch', 'digits', '--set', 'model.width=64', '--output-dir', {str(tmp_path)!r}], "
        "environ={}, stop=StopFlag())",
    )
    argv = [sys.executable, "-c", program]
    ended = subprocess.run(argv, env=harness.plain_environ(), capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "run out of memory): --set micro_batch=" in ended.stdout
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
