"""find-lr and find-batch: settings from measurements."""

import math
import multiprocessing
import resource
import subprocess
import sys
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from tests.trainer import harness
from tests.trainer.learners import make_learner_of, random_batches
from trainer.base.config import OptimizerSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Moment, Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch, Sample
from trainer.cli import main
from trainer.find.finders import find_learning_rate, find_micro_batch, search_largest
from trainer.find.lr_finder import LearningRateSweep, suggest_rate, sweep_learner, sweep_rates

# Shape legend: B batch, T letters.


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


def test_processes_agree_on_the_largest_size_that_fits_everywhere() -> None:
    """Room for 9 on rank 0 and for 5 on rank 1, which runs out in its backward pass: 4 on both, and nobody waits."""
    ended = harness.run_script(str(Path(__file__).with_name("search_run.py")), "9", "5", processes=2)
    assert ended.code == 0, ended.err
    assert {"rank 0: 4", "rank 1: 4"} <= set(ended.out.splitlines())
    assert "their gradients are not reduced" in ended.out
    assert ended.out.count("a micro-batch of 4 fits on cpu (8 run out of memory): --set micro_batch=4") == 1


def test_find_batch_of_a_sharded_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Its forward pass has collectives: a process that runs out of memory would leave the others waiting."""
    argv = ["find-batch", "digits", "--set", "compute.fully_shard=true"]
    assert main(argv, environ={"WORLD_SIZE": "2"}, stop=StopFlag()) == 2
    assert "leave compute.fully_shard off" in capsys.readouterr().err


class Words:
    """Ragged samples in dicts: words of 1 to 4 letters."""

    def __len__(self) -> int:
        return 24

    def sample(self, index: int, rng: np.random.Generator) -> Sample:  # noqa: ARG002
        return {"letters": torch.arange(index % 4 + 1), "kind": index % 3}


class WordStream(Words):
    """The same words, one after another."""

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> Any:  # noqa: ARG002
        return map(self.sample, range(rank, len(self), world_size), repeat(np.random.default_rng(seed)))


def pad_words(words: list[Sample]) -> Batch:
    letters_BT = pad_sequence([word["letters"] for word in words], batch_first=True, padding_value=9)
    return {"letters": letters_BT, "kind": torch.tensor([word["kind"] for word in words])}


def word_recipe(source: Any) -> Recipe[Settings]:
    """A recipe of ragged dicts with a collate of its own and a loss weighted by letters."""
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3))
    workload = Workload(
        model=model,
        train_data=source,
        validation_data=Words(),
        collate=pad_words,
        weight=lambda batch: (batch["letters"] != 9).sum(),
        loss=lambda net, batch: functional.cross_entropy(net(batch["letters"]).mean(dim=1), batch["kind"]),
    )
    return Recipe(settings=Settings(batch_size=8, workers=1), build=lambda _: workload)


@pytest.mark.parametrize("source", [Words(), WordStream()])
def test_find_batch_makes_the_recipes_own_batches(source: Any, tmp_path: Path) -> None:
    """Ragged samples in dicts, padded by the recipe, of numbered samples or a stream; more than one epoch's."""
    said: list[str] = []
    contract = read_contract({}, output_dir=tmp_path)
    assert find_micro_batch(word_recipe(source), contract, said.append, most=32) == 32
    assert "--set micro_batch=32" in said[-1]


def test_find_lr_reads_with_workers_and_sums_up_a_weighted_loss(tmp_path: Path) -> None:
    """The same batches for any number of workers, so the same three rates; no worker is left."""
    contract = read_contract({}, output_dir=tmp_path)
    found = []
    for workers in (0, 1):
        recipe = word_recipe(Words())
        recipe = replace(recipe, settings=replace(recipe.settings, workers=workers))
        torch.manual_seed(0)
        said: list[str] = []
        find_learning_rate(recipe, contract, said.append, lowest=1e-5, highest=1e-2, steps=12)
        found.append(said)
    assert found[0] == found[1]
    assert "steepest" in found[0][0]
    assert not multiprocessing.active_children()


def test_suggested_rate_is_the_one_to_set_when_rates_are_scaled(tmp_path: Path) -> None:
    """The curve has peaks of this batch of 8; the setting is for base_batch=2, so it is a quarter."""
    contract = read_contract({}, output_dir=tmp_path)
    optimizer = OptimizerSettings(scaling="linear", base_batch=2)
    said: list[str] = []
    recipe = word_recipe(Words())
    recipe = replace(recipe, settings=replace(recipe.settings, optimizer=optimizer, workers=0))
    suggestion = find_learning_rate(recipe, contract, said.append, lowest=1e-5, highest=1e-2, steps=12)
    assert f"--set optimizer.learning_rate={suggestion.valley / 4:.2g} " in said[-1]


@pytest.mark.timeout(400)
def test_find_batch_finds_the_limit_of_the_address_space(tmp_path: Path) -> None:
    """Under RLIMIT_AS a real allocator refuses; the largest size that it allowed is named."""
    program = harness.under_address_limit(
        extra_bytes=400 << 20,
        call="from trainer.cli import main; from trainer.base.signals import StopFlag; "
        f"code = main(['find-batch', 'digits', '--set', 'model.width=64', '--output-dir', {str(tmp_path)!r}], "
        "environ={}, stop=StopFlag())",
    )
    argv = [sys.executable, "-c", program]
    ended = subprocess.run(argv, env=harness.plain_environ(), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "run out of memory): --set micro_batch=" in ended.stdout
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
