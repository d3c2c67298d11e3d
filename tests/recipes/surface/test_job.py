"""The job file vesuvius: what it says of machine, times, data and modes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.base.overrides import apply_overrides
from trainer.recipes.surface import recipe

ROOT = Path(__file__).parents[3]
JOB: dict[str, Any] = yaml.safe_load((ROOT / "infra" / "jobs" / "vesuvius.yaml").read_text())
MODES: dict[str, Any] = JOB["modes"]


def hours(duration: str) -> float:
    """Read `191h` or `40m`."""
    number, unit = re.fullmatch(r"(\d+)([hm])", duration).groups()  # type: ignore[union-attr]
    return int(number) / (60 if unit == "m" else 1)


@pytest.mark.parametrize(("mode", "minutes"), [("v2", 57), ("v3", 134)])
def test_expected_times_are_the_measured_epochs_not_the_promised_ones(mode: str, minutes: int) -> None:
    """200 epochs, at 57 min on a T4 and 134 min on an A10G; the original's tables promise a tenth of that."""
    expect = {**JOB["expect"], **(MODES[mode].get("expect") or {})}
    epochs = {**JOB["envs"], **MODES[mode].get("envs", {})}["EPOCHS"]
    assert hours(expect["duration"]) == pytest.approx(epochs * minutes / 60, rel=0.01)
    assert expect["basis"] == "published"
    # The deadline would else end the run with a checkpoint, and without its results.
    assert hours(MODES[mode].get("deadline", JOB["deadline"])) > hours(expect["duration"])


def test_machine_starts_by_itself_is_replaced_and_fetches_the_data_with_its_secret() -> None:
    """The original's user-data never stopped the machine, and a spot loss lost the run."""
    assert JOB["start"] == "boot"
    assert JOB["recover"] is True
    assert JOB["resources"]["use_spot"] is True
    assert JOB["resources"]["disk_size"] == "150GB"
    (source,) = JOB["data"].values()
    assert source == "kaggle://competitions/vesuvius-challenge-surface-detection"
    assert JOB["secrets"] == ["KAGGLE_API_TOKEN"]


@pytest.mark.parametrize("mode", ["validate", "v1", "v2", "v3", "upload"])
def test_settings_of_each_mode_are_settings_of_the_recipe(mode: str) -> None:
    """Names, types and bounds: a typo would fail the run on a machine that is paid for."""
    envs = {**JOB["envs"], **MODES[mode].get("envs", {}), "KAGGLE_DATASET": "me/surface-weights"}
    text = re.sub(r"\$\{KAGGLE_DATASET:\+(.*?)\}\n", r"\1\n", JOB["run"], flags=re.DOTALL)
    for name, value in envs.items():
        text = text.replace(f'"${name}"', shlex.quote(str(value)))
    words = shlex.split(text.replace("\\\n", " "))
    settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    assert not any("$" in each for each in settings)
    read = apply_overrides(recipe().settings, settings)
    assert read.model.variant == (mode if mode in ("v1", "v3") else "v2")
    assert read.epochs == 200
    assert read.data.patch == 128
    # Decoding a volume takes seconds, and the data are on the local disk.
    assert read.data.cache == f"{read.data.folder}/decoded"
    assert read.loss.ignore_index == 2
    assert read.publish.kaggle_upload
    # A T4 has no bf16.
    assert read.compute.amp == ("bf16" if mode == "v3" else "fp16")


def test_data_from_the_laptop_are_checked_before_anything_is_paid_for() -> None:
    """With the batch of the job; on the machine they are checked in any case, before the first step."""
    words = shlex.split(MODES["upload"]["check"])
    (source,) = MODES["upload"]["data"].values()
    assert words[:4] == ["python", "-m", "trainer", "check"]
    assert words[words.index("--data") + 1] == Path(source).name
    assert JOB["run"].startswith("python3 -m trainer check surface")
