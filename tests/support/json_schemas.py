"""Validates the commands' --json output against the schemas in docs/json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = Path(__file__).parents[2] / "docs" / "json"
COMMON = "common.json"


def documented_commands() -> set[str]:
    """List the commands that have a schema."""
    return {path.stem for path in FOLDER.glob("*.json") if path.name != COMMON}


def require_documented(command: str, document: object) -> None:
    """Fail if a command's output doesn't match its schema."""
    faults = [f"{error.json_path}: {error.message[:300]}" for error in _validator(command).iter_errors(document)]
    assert not faults, (command, faults)


@cache
def _validator(command: str) -> Draft202012Validator:
    common = Resource.from_contents(read_schema(COMMON))
    registry: Registry[Any] = Registry().with_resource(COMMON, common)
    return Draft202012Validator(read_schema(f"{command}.json"), registry=registry)


def read_schema(name: str) -> dict[str, Any]:
    """Read a schema file."""
    return dict(json.loads((FOLDER / name).read_text()))
