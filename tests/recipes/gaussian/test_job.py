"""The job file fresnel.yaml: its modes are those of fresnel's script, each with a deadline of its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.overrides import ENVS, Override, Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.core.job import Job
from orchestrator.core.task import Basis
from tests.recipes.gaussian.scenes import write_scenes
from trainer.base.overrides import apply_overrides
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.recipes.gaussian import recipe

MODES = {
    "validate": ("5", "32", "64", "4", "true", timedelta(minutes=5)),
    "fast": ("100", "256", "256", "4", "true", timedelta(hours=2)),
    "standard": ("200", "128", "256", "4", "false", timedelta(hours=6)),
    "full": ("300", "64", "512", "8", "false", timedelta(hours=12)),
}
NAMES = ("EPOCHS", "BATCH_SIZE", "PIXELS", "PER_PATCH", "HFTS")


def read(folder: Path, mode: str, **envs: str) -> Job:
    """Read a copy beside its data, as a user has it."""
    (folder / "images" / "training").mkdir(parents=True, exist_ok=True)
    path = folder / "fresnel.yaml"
    path.write_text(resource("infra", "jobs", "fresnel.yaml").read_text())
    given = Override(flag="--env", key=ENVS, value=[f"{name}={value}" for name, value in envs.items()])
    return read_job(path, mode=mode, overrides=Overrides(given=(given,)), environ={}, providers=("local", "amd"))


@pytest.mark.parametrize("mode", MODES)
def test_modes_are_those_of_fresnels_table(tmp_path: Path, mode: str) -> None:
    """Epochs, batch, pixels, Gaussians of a patch, HFTS."""
    envs = dict(read(tmp_path, mode).envs)
    assert tuple(envs[name] for name in NAMES) == MODES[mode][:5]
    assert envs["MAX_IMAGES"] == ("50" if mode == "validate" else "0")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_a_deadline_beyond_its_estimate(tmp_path: Path, mode: str) -> None:
    """Fresnel's timer of 4 h ends standard and full before they are done. The first step has half an hour.

    The estimates are marked as fresnel's own: `fast` is three times as fast as `standard`, not ten times.
    """
    job = read(tmp_path, mode)
    assert job.expect.basis is Basis.PUBLISHED
    assert job.expect.duration == MODES[mode][5]
    assert job.time_limit >= job.expect.duration * 1.2
    assert job.expect.first_step == timedelta(minutes=30)


@pytest.mark.parametrize(("batch", "code"), [("45", 0), ("46", 1)])
def test_validates_check_counts_only_the_pictures_it_uses(tmp_path: Path, batch: str, code: int) -> None:
    """The first 50, of which 5 are held out: a larger batch is refused here, not on a machine that is paid for."""
    folder = write_scenes(tmp_path / "images" / "training", 60, width=4)
    words = list(read(tmp_path, "validate").checks[0])
    assert words[:5] == ["python", "-m", "trainer", "check", "gaussian"]
    assert words[words.index("--batch-size") + 1] == "32"
    words[words.index("--batch-size") + 1], words[words.index("--data") + 1] = batch, str(folder)
    assert main(words[3:], environ={}, stop=StopFlag()) == code


@pytest.mark.parametrize(("features", "code"), [("auto", 1), ("base", 0), ("large", 1)])
def test_the_check_knows_whose_features_the_run_reads(tmp_path: Path, features: str, code: int) -> None:
    """Phase 2 with small's and base's files: what the recipe refuses is refused here."""
    folder = write_scenes(tmp_path / "images" / "training", 50, width=4)
    write_scenes(folder, 50, width=5, suffix="_dinov2_base.bin")
    words = list(read(tmp_path, "validate", FEATURES=features).checks[0])
    words[words.index("--data") + 1] = str(folder)
    assert main(words[3:], environ={}, stop=StopFlag()) == code


def test_settings_of_the_command_are_the_recipes(tmp_path: Path) -> None:
    """Each `--set` of the job file is accepted, with the values of its mode."""
    job = read(tmp_path, "full")
    words = job.tasks[0].run.replace("\\\n", " ").split()
    settings = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    for name, value in job.envs:
        settings = [each.replace(f'"${name}"', value) for each in settings]
    applied = apply_overrides(recipe().settings, settings)
    assert (applied.epochs, applied.batch_size, applied.data.pixels, applied.workers) == (300, 64, 512, 8)
    assert applied.model.gaussians_per_patch == 8
    assert applied.optimizer == recipe().settings.optimizer


def test_every_mode_draws_samples(tmp_path: Path) -> None:
    """Validate has only five epochs."""
    job = read(tmp_path, "validate")
    assert int(dict(job.envs)["EPOCHS"]) == 5
    assert "--set samples.every_epochs=5" in job.tasks[0].run
