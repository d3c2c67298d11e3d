"""The schema for editors agrees with the reader, and the reference lists every key."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.jobfile.schema import job_schema
from orchestrator.adapters.jobfile.unsupported import NOT_HERE
from orchestrator.core.task_order import expected_duration

ROOT = resource("trainer").parent
JOBS = sorted(resource("infra", "jobs").glob("*.yaml"))
PROVIDERS = ("local", "amd", "aws", "do", "lambda")
SECRETS = {"HF_TOKEN": "hf_secret", "KAGGLE_API_TOKEN": "secret"}


def faults(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(job_schema())
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def keys(schema: dict[str, Any]) -> Iterator[str]:
    for block in (schema, *schema["$defs"].values()):
        yield from block.get("properties", {})


def test_the_schema_is_valid() -> None:
    """By the draft of JSON Schema that it names."""
    jsonschema.Draft202012Validator.check_schema(job_schema())


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_jobs_that_come_with_kedge_are_valid_in_every_mode(path: Path, tmp_path: Path) -> None:
    """For the schema and for the reader; a copy beside its data, as a user has it. Each mode says how long it takes.

    And where that is from.
    """
    text = path.read_text()
    assert faults(text) == []
    copy = Path(shutil.copy(path, tmp_path))
    said = yaml.safe_load(text)
    for each in (said, *(mode or {} for mode in said["modes"].values())):
        for source in each.get("data", {}).values():
            if "://" not in source:
                (tmp_path / source).mkdir(parents=True, exist_ok=True)
    takes = {name: len((mode or {}).get("arguments", ())) for name, mode in said["modes"].items()}
    for mode in (None, *(" ".join((name, *["8"] * count)) for name, count in takes.items())):
        job = read_job(copy, mode=mode, overrides=Overrides(), environ=SECRETS, providers=PROVIDERS)
        if mode or "expect" in said:
            assert job.bundled_trainer
            if not job.mode_arguments:
                expected = expected_duration(job)
                assert expected is not None, mode
                assert expected < job.time_limit, mode
                assert job.expect.basis is not None, mode
    own = [mode["expect"] for mode in said["modes"].values() if mode and "duration" in mode.get("expect", {})]
    assert all("basis" in expect for expect in own), "that of the job isn't that of the mode's own time"


@pytest.mark.parametrize(
    "text",
    [
        "run: x\nresources: {accelerators: {A10G: 4}, disk_size: 256, use_spot: true}",
        "resources: {accelerators: [MI300X], disk_size: 1TB}\nbudget: $10\nsupervisor: tmux",
        "data: {a: ./b, c: {source: d, follow_links: true}}\nsecrets: [A]\nenvs: {A: 1, B: x, C: null, D: true}",
        "data: [{source: a, target: b}]\nsecrets: {A: null}\noutputs: a\nbudget: 0.5",
        "modes: {fast: {deadline: 1h30m, supervisor: {kind: nohup, restarts: 0}}, empty: }",
    ],
)
def test_valid_jobs_are_valid_for_the_schema(text: str) -> None:
    """Each form that a value may have."""
    assert faults(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "namee: x",
        "name: My_Task",
        "resources: {acceleratorz: A10G}",
        "resources: {accelerators: {A: 1, B: 2}}",
        "resources: {use_spot: perhaps}",
        "modes: {fast: {workdir: .}}",
        "deadline: 90",
        "deadline: 2 hours",
        "budget: ten",
        "supervisor: tmx",
        "supervisor: {restarts: -1}",
        "secrets: {A: hunter2}",
        "outputs: [/x]",
        "data: [{source: x}]",
        "num_nodes: 0",
        "elastic: 2-4",
        "tasks: {a: {gpuss: 1}}",
        "tasks: {a: {gpus: one}}",
        "on_failure: stop",
    ],
)
def test_the_schema_finds_typical_mistakes(text: str) -> None:
    """Editors underline them."""
    assert faults(text)


def test_every_key_is_described() -> None:
    """Editors show the description while you type, and docs/job-file.md has each key in a table."""
    schema = job_schema()
    reference = (ROOT / "docs" / "job-file.md").read_text()
    for block in (schema, *schema["$defs"].values()):
        assert all(field.get("description") for field in block["properties"].values())
    missing = [key for key in set(keys(schema)) if f"| `{key}` |" not in reference]
    assert missing == []


def test_every_unsupported_key_is_in_the_reference() -> None:
    """The page says what to use instead."""
    reference = (ROOT / "docs" / "job-file.md").read_text()
    named = set(re.findall(r"`(?:resources\.)?(\w+)`", reference))
    assert set(NOT_HERE) <= named


def test_the_examples_of_the_reference_can_be_read(tmp_path: Path) -> None:
    """Each YAML block of docs/job-file.md, by the reader itself."""
    reference = (ROOT / "docs" / "job-file.md").read_text()
    blocks = [part.split("```")[0] for part in reference.split("```yaml\n")[1:]]
    (tmp_path / "datasets" / "images").mkdir(parents=True)
    assert blocks
    for block in blocks:
        path = tmp_path / "kedge.yaml"
        path.write_text(block)
        environ = {"HF_TOKEN": "x", "WANDB_API_KEY": "x"}
        providers = ("aws", "do", "local")
        assert read_job(path, mode=None, overrides=Overrides(), environ=environ, providers=providers).tasks
