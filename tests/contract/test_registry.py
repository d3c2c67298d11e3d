"""Providers are found by name, and a name that is wrong is answered with the nearest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import PROVIDERS, Context, open_backing
from orchestrator.core.errors import BadRequestError


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(state_dir=tmp_path / "state", runtime_dir=tmp_path, clock=SystemClock(), key_file=tmp_path / "key")


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_calls_itself_by_its_registered_name(context: Context, name: str) -> None:
    """Machines and offers carry the name, by which the next command opens the provider."""
    assert open_backing(name, context).provider.name == name


def test_an_unknown_provider_is_answered_with_the_nearest(context: Context) -> None:
    """A slip of the finger is a bad request that says what was meant."""
    with pytest.raises(BadRequestError, match="did you mean 'local'"):
        open_backing("LOCAL1", context)


def test_naming_the_providers_imports_none_of_them() -> None:
    """Commands that only list names stay quick."""
    code = "import sys, orchestrator.adapters.providers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = set(done.stdout.split())
    modules = {f"orchestrator.adapters.providers.{entry.module}" for entry in PROVIDERS.values()}
    assert not loaded & {*modules, "boto3", "psutil", "pydo", "jinja2", "msgspec", "pydantic"}


def test_the_amd_developer_cloud_is_another_line_over_the_same_module() -> None:
    """What tells it from DigitalOcean is where its API is, and the variables of its own."""
    do, amd = PROVIDERS["do"], PROVIDERS["amd"]
    assert do.module == amd.module
    assert do.options.keys() == amd.options.keys()
    assert all(do.options[name] != amd.options[name] for name in do.options)
