"""What the commands in pcdiff-scaling.yaml and skull-dual.yaml set, mode by mode, read from the shell's words."""

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.base.overrides import apply_overrides
from trainer.recipes.pcdiff.settings import PCDiffSettings
from trainer.recipes.pcdiff.workload import recipe
from trainer.step.batch import plan_batch
from trainer.step.schedule import scale_learning_rate

JOBS = Path(__file__).parents[3] / "infra" / "jobs"
SCALING: dict[str, Any] = yaml.safe_load((JOBS / "pcdiff-scaling.yaml").read_text())
DUAL: dict[str, Any] = yaml.safe_load((JOBS / "skull-dual.yaml").read_text())
CASES = 455


def words_of(script: str, envs: dict[str, Any]) -> list[str]:
    """Run a script with a torchrun and a python3 that print their words."""
    variables = {name: str(value) for name, value in envs.items()}
    shell = ["bash", "-euc", f'torchrun() {{ printf "%s\\n" "$@"; }}\npython3() {{ torchrun "$@"; }}\n{script}']
    environ = {"PATH": "/usr/bin:/bin", "MASTER_PORT": "29501", **variables}
    done = subprocess.run(shell, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def settings_of(words: list[str]) -> PCDiffSettings:
    overrides = [word for before, word in itertools.pairwise(words) if before == "--set"]
    return apply_overrides(recipe().settings, overrides)


def scaling_mode(mode: str, **changes: str) -> tuple[list[str], dict[str, Any]]:
    envs = {**SCALING["envs"], **SCALING["modes"][mode]["envs"], **changes}
    return words_of(SCALING["run"], envs), envs


@pytest.mark.parametrize(
    ("mode", "gpus", "square_root", "linear"),
    [
        ("gpus-1", 1, 2e-4, 2e-4),
        ("gpus-2", 2, 2.83e-4, 4e-4),
        ("gpus-4", 4, 4e-4, 8e-4),
        ("gpus-8", 8, 5.66e-4, 1.6e-3),
        ("nodes-2", 16, 8e-4, 3.2e-3),
    ],
)
def test_each_mode_has_eight_samples_per_gpu_and_the_tables_rates(
    mode: str, gpus: int, square_root: float, linear: float
) -> None:
    for scaling, rate in (("sqrt", square_root), ("linear", linear)):
        words, envs = scaling_mode(mode, SCALING=scaling)
        processes = int(words[words.index("--nproc-per-node") + 1]) * SCALING["modes"][mode].get("num_nodes", 1)
        settings = settings_of(words)
        plan = plan_batch(batch_size=settings.batch_size, world_size=processes, samples=CASES, epochs=settings.epochs)
        assert (processes, plan.per_device) == (gpus, 8)
        assert scale_learning_rate(settings.optimizer, batch_size=plan.batch_size) == pytest.approx(rate, rel=2e-3)
        assert envs["NCCL_DEBUG"] == "WARN"


def test_accumulation_warm_up_and_a_lower_rate_are_variables() -> None:
    words, _ = scaling_mode("gpus-8", MICRO_BATCH="4", WARMUP_EPOCHS="7", RATE_FACTOR="0.5", MAX_STEPS="1000")
    settings = settings_of(words)
    assert (settings.micro_batch, settings.schedule.warmup_epochs, settings.max_steps) == (4, 7, 1000)
    assert scale_learning_rate(settings.optimizer, batch_size=64) == pytest.approx(2.83e-4, rel=2e-3)


def test_the_supervisor_is_systemd_and_the_command_resumes_by_itself() -> None:
    """The original's unit restarted from scratch; this command has no flag that would."""
    assert SCALING["supervisor"] == {"kind": "systemd", "restarts": 10, "restart_after": "10s", "grace": "5m"}
    words, _ = scaling_mode("gpus-8")
    assert not {"--from", "--init"} & set(words)
    assert "--nnodes" not in words, "kedge says how many in PET_NNODES"


@pytest.mark.parametrize("mode", ["pcdiff", "both"])
def test_skull_dual_goes_on_from_epoch_1999_with_56_over_seven_gpus(mode: str) -> None:
    task = DUAL["modes"][mode]["tasks"]["pcdiff"]
    words = words_of(task["run"], {**DUAL["envs"], **task["envs"]})
    assert task["gpus"] == "0-6"
    assert words[words.index("--master-port") + 1] == "29501"
    assert words[words.index("--from") + 1] == "datasets/SkullBreak/epoch_1999.pth"
    settings = settings_of(words)
    plan = plan_batch(batch_size=settings.batch_size, world_size=7, samples=CASES, epochs=settings.epochs)
    assert (plan.per_device, settings.epochs, settings.checkpoint.keep_every_epochs) == (8, 15_000, 1_000)
    assert not settings.track.wandb
    assert scale_learning_rate(settings.optimizer, batch_size=56) == pytest.approx(5.3e-4, rel=3e-3)
    linear = words_of(task["run"], {**DUAL["envs"], **task["envs"], "SCALING": "linear", "FROM": ""})
    assert scale_learning_rate(settings_of(linear).optimizer, batch_size=56) == pytest.approx(1.4e-3)
    assert "--from" not in linear


def test_both_trainings_share_the_machine_without_overlap() -> None:
    tasks = DUAL["modes"]["both"]["tasks"]
    assert (tasks["pcdiff"]["gpus"], tasks["voxelization"]["gpus"]) == ("0-6", 7)
    assert DUAL["on_failure"] == "go-on"
    assert DUAL["supervisor"]["kind"] == "tmux"
    assert tasks["pcdiff"]["run"] == DUAL["modes"]["pcdiff"]["tasks"]["pcdiff"]["run"]
    assert tasks["voxelization"]["run"] == DUAL["modes"]["voxelization"]["tasks"]["voxelization"]["run"]


def test_each_mode_checks_all_of_its_data_before_anything_is_rented() -> None:
    for mode in DUAL["modes"].values():
        checks = [mode["check"]] if isinstance(mode["check"], str) else mode["check"]
        assert [check.split()[check.split().index("--data") + 1] for check in checks] == list(mode["data"])


@pytest.mark.parametrize("mode", ["both", "rehearse"])
def test_a_variable_on_the_command_line_reaches_one_of_the_two_trainings(mode: str) -> None:
    """`--env` sets it for all tasks."""
    tasks = DUAL["modes"][mode]["tasks"]
    assert not set(tasks["pcdiff"]["envs"]) & set(tasks["voxelization"]["envs"])
    words = words_of(tasks["voxelization"]["run"], {**DUAL["envs"], **tasks["voxelization"]["envs"], "VOX_EPOCHS": 7})
    assert "epochs=7" in words


@pytest.mark.parametrize("job", [SCALING, DUAL], ids=["pcdiff-scaling", "skull-dual"])
def test_without_a_mode_nothing_is_rented(job: dict[str, Any]) -> None:
    assert job["resources"] == {"infra": "local"}
    for mode in job["modes"].values():
        assert mode["budget"] if "resources" in mode else True


def test_rehearsals_are_small_enough_for_a_laptop() -> None:
    words, _ = scaling_mode("rehearse")
    task = DUAL["modes"]["rehearse"]["tasks"]["pcdiff"]
    dual = words_of(task["run"], {**DUAL["envs"], **DUAL["modes"]["rehearse"]["envs"], **task["envs"]})
    for settings in (settings_of(words), settings_of(dual)):
        assert settings.max_steps <= 4
        assert settings.data.points == 256
        assert settings.sampling.validation_steps == 4
