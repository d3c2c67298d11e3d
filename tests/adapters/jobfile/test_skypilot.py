"""A task written for SkyPilot runs unchanged, or is refused with the keys that kedge doesn't support."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job, Resources
from orchestrator.core.offer import Accelerators

TASKS = Path(__file__).parent / "skypilot"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with the tasks and the folders that they send."""
    shutil.copytree(TASKS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "datasets" / "alpaca-7b").mkdir(parents=True)
    (tmp_path / "resnet").mkdir()
    return tmp_path


def read(path: Path) -> Job:
    environ = {"HF_TOKEN": "x", "WANDB_API_KEY": "y", "RUN_BY": "ada"}
    return read_job(path, mode=None, overrides=Overrides(), environ=environ, providers=("aws", "do", "local"))


def test_a_fine_tuning_task_for_aws_runs_as_it_is(project: Path) -> None:
    """Its keys keep SkyPilot's meaning."""
    job = read(project / "finetune-aws.yaml")
    assert job.name == "llm-finetune"
    assert job.workdir == str(project)
    assert job.resources == Resources(
        provider="aws",
        regions=("us-east-1",),
        accelerators=Accelerators(name="a10g", count=4),
        image_id="ami-0868a20f5a3bf9702",
        use_spot=True,
        disk_gib=512,
    )
    assert dict(job.envs) == {
        "MODEL_SIZE": "7b",
        "WANDB_PROJECT": "finetune",
        "LEARNING_RATE": "2e-5",
    }
    assert job.inherited == ("RUN_BY",)
    assert job.secrets == ("HF_TOKEN", "WANDB_API_KEY")
    assert job.data == (DataMount(source=str(project / "datasets" / "alpaca-7b"), target="data/alpaca"),)
    assert job.tasks[0].run.startswith("conda activate finetune\ntorchrun --nproc_per_node 4 train.py \\\n")
    assert job.setup.endswith("pip install -r requirements.txt\n")
    assert not job.bundled_trainer


def test_a_task_with_older_keys_for_digitalocean_runs_as_it_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cloud` and `region` instead of `infra`, a working folder in the home folder, and the file's name as its name."""
    monkeypatch.setenv("HOME", str(project))
    job = read(project / "mi300x-do.yaml")
    assert job.name == "mi300x-do"
    assert job.workdir == str(project / "resnet")
    assert job.resources == Resources(
        provider="do",
        regions=("tor1",),
        accelerators=Accelerators(name="mi300x", count=8),
        instance_type="gpu-mi300x8-1536gb",
        disk_gib=2048,
    )
    assert dict(job.envs)["AMP"] == "on"


def test_all_unsupported_keys_are_reported_at_once(project: Path) -> None:
    """With their lines, and what to use instead."""
    with pytest.raises(BadRequestError) as caught:
        read(project / "not-here.yaml")
    lines = [line.strip() for line in caught.value.why.splitlines()]
    assert [line.split("`")[1] for line in lines] == [
        "resources.any_of",
        "resources.cpus",
        "resources.memory",
        "resources.ports",
        "resources.job_recovery",
        "file_mounts./checkpoints",
    ]
    assert lines[1].startswith("line 8: ")
    assert "instance_type" in lines[1]
