"""infra/jobs/imagenet.yaml: what its command sets in each mode, and what it doesn't say."""

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.laptop import Laptop
from trainer.base.overrides import apply_overrides
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.generators import generate_data
from trainer.recipes.imagenet import ImageNetSettings, recipe
from trainer.step.batch import plan_batch
from trainer.step.schedule import learning_rate, scale_learning_rate

INFRA = Path(__file__).parents[3] / "infra"
TEXT = (INFRA / "jobs" / "imagenet.yaml").read_text()
JOB: dict[str, Any] = yaml.safe_load(TEXT)
OFFERS: dict[str, Any] = json.loads((INFRA / "aws" / "offers.json").read_text())
PICTURES = 1_281_167
CLOUD = ["validate", "small", "g1", "g4", "g8"]
ALL = ["g1", "g4", "g8"]


def words_of(mode: str, **changes: str) -> list[str]:
    """Run the command with a torchrun that prints its words."""
    envs = {**JOB["envs"], **JOB["modes"][mode]["envs"], **changes}
    variables = {name: str(value) for name, value in envs.items()}
    shell = ["bash", "-euc", f'torchrun() {{ printf "%s\\n" "$@"; }}\n{JOB["run"]}']
    environ = {"PATH": "/usr/bin:/bin", "HF_TOKEN": "hf_secret", **variables}
    return subprocess.run(shell, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


def setup_words_of(mode: str, **changes: str) -> list[str]:
    """Run the setup with a python3 that prints the words of its last call."""
    variables = {name: str(value) for name, value in {**JOB["envs"], **JOB["modes"][mode]["envs"], **changes}.items()}
    shell = ["bash", "-euc", f'python3() {{ printf "%s\\n" "$@"; }}\n{JOB["setup"]}']
    printed = subprocess.run(shell, env=variables, capture_output=True, text=True, check=True).stdout
    return ["check", *printed.rpartition("\ncheck\n")[2].splitlines()]


def settings_of(words: list[str]) -> ImageNetSettings:
    overrides = [word for before, word in itertools.pairwise(words) if before == "--set"]
    return apply_overrides(recipe().settings, overrides)


def gpus_of(words: list[str]) -> int:
    return int(words[words.index("--nproc-per-node") + 1])


@pytest.mark.parametrize("mode", ["rehearse", *CLOUD])
def test_the_command_of_each_mode_is_one_that_the_recipe_takes(mode: str) -> None:
    words = words_of(mode)
    settings = settings_of(words)
    pictures = {"rehearse": 240, "validate": 9469, "small": 9469}.get(mode, PICTURES)
    plan = plan_batch(
        batch_size=settings.batch_size,
        world_size=gpus_of(words),
        samples=pictures,
        epochs=settings.epochs,
        micro_batch=settings.micro_batch,
    )
    assert plan.total_steps > 0
    assert settings.loss.mixup == 0.2
    assert settings.compute.sync_batchnorm


@pytest.mark.parametrize(
    ("mode", "gpus", "batch", "epochs"), [("g1", 1, 256, 90), ("g4", 4, 512, 90), ("g8", 8, 1024, 90)]
)
def test_batches_and_rates_are_the_tables(mode: str, gpus: int, batch: int, epochs: int) -> None:
    """The rate grows with the batch from 0.1 at 256 on."""
    words = words_of(mode)
    settings = settings_of(words)
    assert (gpus_of(words), settings.batch_size, settings.epochs) == (gpus, batch, 90)
    assert scale_learning_rate(settings.optimizer, batch_size=batch) == pytest.approx(0.1 * batch / 256)
    assert OFFERS["types"][JOB["modes"][mode]["resources"]["instance_type"]]["gpus"] == gpus


@pytest.mark.parametrize("mode", ALL)
def test_a_gpu_gets_128_pictures_at_once(mode: str) -> None:
    """About 8 GB with AMP: fits into 16."""
    words = words_of(mode)
    settings = settings_of(words)
    assert (settings.micro_batch or settings.batch_size // gpus_of(words)) == 128
    assert settings.compute.amp == ("fp16" if mode == "g8" else "bf16")


def test_offers_know_the_memory_of_v100s() -> None:
    assert {name: OFFERS["types"][name]["gpu_memory_gib"] for name in ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge")} == {
        "p3.2xlarge": 16.0,
        "p3.8xlarge": 16.0,
        "p3.16xlarge": 16.0,
    }


def test_offers_know_all_machines_that_the_file_names() -> None:
    """With the GPUs that it says: for planning without an account."""
    gpus = {name: OFFERS["types"][name]["gpus"] for name in set(re.findall(r"\b[gp]\d\.\d*xlarge", TEXT))}
    four = {"g5.12xlarge": 4, "g5.24xlarge": 4, "p3.8xlarge": 4}
    assert gpus == {"g5.8xlarge": 1, "p3.2xlarge": 1, "p3.16xlarge": 8, **four}


def test_all_modes_can_be_planned_without_an_account(laptop: Laptop) -> None:
    """The rehearsal on this computer, which has no data volumes, and all others with the price of theirs."""
    without = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "HF_TOKEN": "hf_secret"}
    laptop.extra_env |= {**without, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    table = laptop.kedge("plan", "--job", "imagenet", "--all-modes")
    rows = {line.split()[0]: line.split()[1] for line in table.splitlines() if line.split()[:1]}
    machines = {mode: JOB["modes"][mode].get("resources", {}).get("instance_type", "local") for mode in JOB["modes"]}
    assert {mode: rows[mode] for mode in machines} == machines


def test_without_a_mode_nothing_is_rented() -> None:
    """No machine, and no volume that would bill until it is deleted, and bind all later runs to its zone."""
    assert (JOB["resources"], JOB.get("volumes")) == ({"infra": "local"}, None)
    volumes = [JOB["modes"][mode]["volumes"] for mode in CLOUD]
    assert all(each == volumes[0] for each in volumes)


def test_the_small_mode_has_ten_classes_and_20_epochs() -> None:
    settings = settings_of(words_of("small"))
    assert (settings.epochs, settings.data.pixels) == (20, 160)
    (source,) = JOB["modes"]["small"]["data"].values()
    assert "imagenette2-160" in source


def test_memory_has_variables() -> None:
    settings = settings_of(words_of("g4", MICRO_BATCH="64", CHECKPOINTING="true"))
    assert settings.micro_batch == 64
    assert settings.compute.gradient_checkpointing


def test_cosine_never_restarts() -> None:
    """It falls in every step after the warm-up, to 0 at the end."""
    settings = settings_of(words_of("g4"))
    plan = plan_batch(batch_size=512, world_size=4, samples=PICTURES, epochs=90)
    steps = range(5 * plan.steps_per_epoch, plan.total_steps, 100)
    schedule = settings.schedule
    assert (schedule.name, schedule.warmup_epochs) == ("cosine", 5)
    rates = [learning_rate(schedule, peak=1, step=step, plan=plan) for step in steps]
    assert all(later < earlier for earlier, later in itertools.pairwise(rates))


def test_folders_beside_tar_files_are_one_variable(tmp_path: Path) -> None:
    """For the check of `setup`, and for the training."""
    generate_data("imagenet", tmp_path, count=120, seed=0)
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"an archive of archives")
    for layout, code in (("auto", 1), ("folders", 0)):
        changes = {"DATA": str(tmp_path), "LAYOUT": layout, "BATCH_SIZE": "64"}
        assert main(setup_words_of("g4", **changes), environ={}, stop=StopFlag()) == code
        assert settings_of(words_of("g4", **changes)).data.layout == layout


def test_one_cycle_with_a_rate_that_is_found_is_two_variables() -> None:
    settings = settings_of(words_of("g4", LR="auto", SCHEDULE="one_cycle"))
    assert (settings.optimizer.learning_rate, settings.schedule.name) == ("auto", "one_cycle")


def test_the_push_is_one_variable_and_the_token_is_on_no_command_line() -> None:
    words = words_of("g4", HUB_REPO="me/resnet50")
    publish = settings_of(words).publish
    assert (publish.hub_repo, publish.hub_during) == ("me/resnet50", True)
    assert not any("hf_secret" in word for word in words)
    assert not settings_of(words_of("g4")).publish.hub_repo
    assert "HF_TOKEN" not in JOB["run"] + JOB["setup"]
    assert all(JOB["modes"][mode]["secrets"] == ["HF_TOKEN"] for mode in ALL)


def test_the_volume_is_kept_and_fast() -> None:
    (volume,) = JOB["modes"]["g4"]["volumes"].values()
    assert volume == {"name": "imagenet", "size": 500, "throughput": 500, "at_end": "keep"}
    targets = [target for mode in CLOUD for target in JOB["modes"][mode]["data"]]
    assert all(target.startswith("imagenet/") for target in targets)


def test_no_mode_has_a_maximum_price() -> None:
    assert all(JOB["modes"][mode]["resources"]["use_spot"] for mode in CLOUD)
    assert "max_hourly_cost" not in TEXT


def test_setup_installs_no_system_packages() -> None:
    assert "apt" not in JOB["setup"].replace("matplotlib", "")


def test_published_times_are_marked() -> None:
    marked = {mode for mode in CLOUD if JOB["modes"][mode]["expect"].get("basis") == "published"}
    assert marked == {"small", "g4"}
    assert "2.5 hours an epoch, which would be 225 hours" in TEXT


@pytest.mark.parametrize("mode", CLOUD)
def test_the_deadline_is_later_than_the_expected_end(mode: str) -> None:
    hours = {"m": 1 / 60, "h": 1.0}

    def read(text: str) -> float:
        return float(text[:-1]) * hours[text[-1]]

    assert read(JOB["modes"][mode]["deadline"]) > 1.2 * read(JOB["modes"][mode]["expect"]["duration"])
