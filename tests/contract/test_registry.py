"""Providers are found by name, and an unknown name gets the nearest as a suggestion."""

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
def test_a_providers_name_is_its_registered_name(context: Context, name: str) -> None:
    """Machines and offers carry the name, and the next command opens the provider by it."""
    assert open_backing(name, context).provider.name == name


def test_an_unknown_provider_name_suggests_the_nearest(context: Context) -> None:
    """A typing error is a bad request that names what was meant."""
    with pytest.raises(BadRequestError, match="did you mean 'local'"):
        open_backing("LOCAL1", context)


def test_listing_the_providers_imports_none_of_them() -> None:
    """Commands that only list names stay quick."""
    code = "import sys, orchestrator.adapters.providers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    modules = {f"orchestrator.adapters.providers.{entry.module}" for entry in PROVIDERS.values()}
    assert not loaded & {*modules, "boto3", "psutil", "pydo", "jinja2", "msgspec", "pydantic"}


def test_the_amd_developer_cloud_is_another_entry_for_the_same_module() -> None:
    """It differs from DigitalOcean by the address of its API and by its variables."""
    do, amd = PROVIDERS["do"], PROVIDERS["amd"]
    assert do.module == amd.module
    assert do.options.keys() == amd.options.keys()
    assert all(do.options[name] != amd.options[name] for name in do.options)
