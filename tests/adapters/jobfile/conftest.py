"""Fixtures: read a job file from text, or expect its refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from orchestrator.adapters.jobfile.read import read_job
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from tests.support.flags import given

PROVIDERS = ("aws", "do", "local")

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project's folder; its job file is called `kedge.yaml`."""
    made = tmp_path / "My Project"
    made.mkdir()
    return made


@pytest.fixture
def read(folder: Path) -> Read:
    """Read a job file with this text: `read(text, mode=..., environ=..., **flags)`."""

    def _read(text: str, *, mode: str | None = None, environ: Mapping[str, str] | None = None, **flags: Any) -> Job:
        path = folder / "kedge.yaml"
        path.write_text(dedent(text), "utf-8")
        return read_job(path, mode=mode, overrides=given(**flags), environ=environ or {}, providers=PROVIDERS)

    return _read


@pytest.fixture
def refuse(read: Read) -> Refuse:
    """Read a job file that is refused, and return the refusal."""

    def _refuse(text: str, **arguments: object) -> BadRequestError:
        with pytest.raises(BadRequestError) as caught:
            read(text, **arguments)
        assert caught.value.exit_code == 2
        return caught.value

    return _refuse
