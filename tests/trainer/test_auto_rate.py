"""`optimizer.learning_rate=auto`: found once, before the first step, and kept."""

import tomllib
from pathlib import Path

import pytest

from tests.trainer import harness
from trainer.base.config import Settings
from trainer.base.overrides import apply_overrides
from trainer.base.setting import describe_settings, describe_type
from trainer.checkpoints.header import read_header
from trainer.find.lr_finder import LearningRateSweep, suggest_rate

KEY = "optimizer.learning_rate"
AUTO = (*harness.SMALL, f"{KEY}=auto", "epochs=1")
SEARCHED = "a range test looks for it"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole run that has found its rate."""
    folder = tmp_path_factory.mktemp("auto") / "output"
    assert harness.call(folder, *AUTO, "curves=true") == 0
    return folder


def read_rate(folder: Path) -> float:
    rate = tomllib.loads((folder / "config.toml").read_text())["optimizer"]["learning_rate"]
    assert isinstance(rate, float)
    return rate


def test_rate_is_recorded_as_a_number_in_the_configuration_and_in_checkpoints(searched: Path) -> None:
    rate = read_rate(searched)
    assert 1e-6 < rate < 1
    assert read_header(harness.newest_checkpoint(searched)).plain["fingerprint"][KEY] == rate
    assert max(row["lr"] for row in harness.read_rows(searched) if "lr" in row) == pytest.approx(rate, rel=0.05)
    assert (searched / "lr-finder.png").is_file()


def test_run_ends_with_the_bits_of_one_that_was_given_the_rate(searched: Path, tmp_path: Path) -> None:
    """The search leaves nothing behind: weights, moments, random states and rows are equal."""
    given = tmp_path / "output"
    assert harness.call(given, *AUTO, f"{KEY}={read_rate(searched)}") == 0
    harness.assert_same_run(searched, given)


def test_resumed_run_takes_the_recorded_rate_and_searches_no_more(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped after 20 steps; the same command goes on, and ends with the same bits."""
    folder = tmp_path / "output"
    assert harness.call(folder, *AUTO, stop=harness.StopAtLook(20)) == 0
    assert SEARCHED in capsys.readouterr().out
    assert harness.call(folder, *AUTO) == 0
    out = capsys.readouterr().out
    assert SEARCHED not in out
    assert f"learning rate {read_rate(searched):g}: found when the run began" in out
    assert "resumed from step" in out
    assert "changed since the checkpoint" not in out
    harness.assert_same_run(folder, searched)


def test_processes_have_one_rate_and_print_one_search(tmp_path: Path) -> None:
    ended = harness.run(tmp_path / "output", *AUTO, "max_steps=4", processes=2)
    assert ended.code == 0, ended.err
    assert ended.out.count(SEARCHED) == 1
    again = harness.run(tmp_path / "output", *AUTO, "max_steps=8", processes=2)
    assert again.code == 0, again.err
    assert f"learning rate {read_rate(tmp_path / 'output'):g}: found when the run began" in again.out


def test_rate_is_for_the_base_batch_and_multiplied_by_the_users_factor(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps have the rate that was found for their batch, times rate_factor."""
    folder = tmp_path / "output"
    scaled = ("optimizer.scaling=linear", "optimizer.base_batch=64", "optimizer.rate_factor=0.5", "max_steps=2")
    assert harness.call(folder, *AUTO, *scaled, "schedule.name=constant", "schedule.warmup_steps=0") == 0
    assert read_rate(folder) == pytest.approx(4 * read_rate(searched), rel=0.01)
    assert harness.read_rows(folder)[0]["lr"] == pytest.approx(0.5 * read_rate(searched), rel=0.01)
    assert "for this batch of 16" in capsys.readouterr().out


def test_search_starts_from_the_weights_of_init(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained weights fall less steeply than random ones: the curve, and so the rate, is another."""
    folder = tmp_path / "output"
    assert harness.call(folder, *AUTO, "max_steps=1", flags=["--init", searched / "model.safetensors"]) == 0
    assert read_rate(folder) != read_rate(searched)
    assert SEARCHED in capsys.readouterr().out


def test_run_that_goes_on_from_another_is_refused(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    flags: list[str | Path] = ["--from", harness.newest_checkpoint(searched)]
    assert harness.call(tmp_path / "output", *AUTO, "epochs=3", flags=flags) == 2
    assert "auto is for a run that begins" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_setting_is_a_number_or_auto(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = apply_overrides(Settings(), [f"{KEY}=auto"])
    assert settings.optimizer.learning_rate == "auto"
    assert apply_overrides(settings, [f"{KEY}=0.5"]).optimizer.rate == 0.5
    (described,) = (each for each in describe_settings(settings) if each.key == KEY)
    assert describe_type(described.hint) == "number or auto"
    for wrong, said in (("fast", "must be a number or one of auto"), ("0", "must be greater than 0")):
        assert harness.call(tmp_path / "output", f"{KEY}={wrong}") == 2
        assert said in capsys.readouterr().err


def test_commands_that_train_nothing_refuse_to_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from trainer.base.signals import StopFlag
    from trainer.cli import main

    argv = ["advise", "digits", "--gpus", "2", *harness.settings_args(AUTO)]
    assert main(argv, environ={}, stop=StopFlag()) == 2
    assert "optimizer.learning_rate=auto is no number" in capsys.readouterr().err


def test_steepest_fall_is_not_looked_for_at_the_ends() -> None:
    """The first losses are few to average, and the last are about to diverge."""
    losses = [9.0, 5.0, *(4 - 0.01 * number for number in range(40)), 3.0, 2.0, 1.5]
    losses[25] -= 0.2
    losses[26:] = [loss - 0.4 for loss in losses[26:]]
    rates = [1e-6 * 1.2**number for number in range(len(losses))]
    assert rates[24] <= suggest_rate(LearningRateSweep(rates=rates, losses=losses)).steepest <= rates[26]
