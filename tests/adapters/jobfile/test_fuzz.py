"""Fuzzing: whatever a job file contains, it is read or refused."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.jobfile.models import JobPart
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.parts import ResourcesPart, SupervisorPart
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.jobfile.task_parts import TaskPart
from orchestrator.adapters.jobfile.unsupported import NOT_HERE
from orchestrator.core.errors import BadRequestError

MODELS = (JobPart, ResourcesPart, SupervisorPart, TaskPart)
KEYS = sorted({key for model in MODELS for key in model.model_fields} | set(NOT_HERE))
WORDS = st.sampled_from(
    ["x", "aws", "a/b", "~", "~x/y", "$A", "..", "/x", "1h", "90", "1e999", "$1", "on", "", "s3://b", "\0", "\ud800"]
)
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | WORDS, inner, max_size=4),
    max_leaves=12,
)
JOBS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
ONE_FILE = [HealthCheck.function_scoped_fixture]


TASKS = st.dictionaries(
    st.sampled_from("abc") | WORDS,
    st.dictionaries(st.sampled_from(sorted(TaskPart.model_fields)), VALUES | st.sampled_from("abc0123"), max_size=5),
    max_size=4,
)


def read_or_refuse(path: Path, raw: bytes, mode: str | None = None) -> None:
    path.write_bytes(raw)
    try:
        read_job(path, mode=mode, overrides=Overrides(), environ={"A": "a"}, providers=("aws", "local"))
    except BadRequestError as err:
        refusal = err
    else:
        return
    assert str(path) in refusal.what
    assert "\n" not in refusal.what


@given(raw=st.binary(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=ONE_FILE)
def test_any_bytes_are_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    """No exception but BadRequestError is raised."""
    read_or_refuse(tmp_path / "job.yaml", raw)


@given(text=st.text(alphabet=st.sampled_from(" \n\t:-[]{}#&*!|>'\"%@`,?<~ab01$./"), max_size=80))
@example(text="%YAML 1.1.1")
@settings(max_examples=300, deadline=None, suppress_health_check=ONE_FILE)
def test_any_text_of_yamls_special_characters_is_read_or_refused(tmp_path: Path, text: str) -> None:
    """No exception but BadRequestError is raised."""
    read_or_refuse(tmp_path / "job.yaml", text.encode())


@given(job=JOBS, mode=st.none() | st.sampled_from(["x", "run"]))
@settings(max_examples=300, deadline=None, suppress_health_check=ONE_FILE)
def test_any_values_under_known_keys_are_read_or_refused(
    tmp_path: Path, job: dict[str, object], mode: str | None
) -> None:
    """No exception but BadRequestError is raised."""
    raw = yaml.safe_dump(job, allow_unicode=False).encode()
    read_or_refuse(tmp_path / "job.yaml", raw, mode)


@given(tasks=TASKS, run=st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=ONE_FILE)
def test_any_tasks_are_read_or_refused(tmp_path: Path, tasks: dict[str, dict[str, object]], run: bool) -> None:
    """In bounded time: also cycles, and ranges of GPUs."""
    said = {name: {**keys, **({"run": "x"} if run else {})} for name, keys in tasks.items()}
    read_or_refuse(tmp_path / "job.yaml", yaml.safe_dump({"tasks": said}, allow_unicode=False).encode())
