"""Reads cases: in each YAML file of this folder a base, and cases that are laid over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parent


def read_cases(*names: str) -> list[Any]:
    """Return the cases of some files as parameters, each called by what it says."""
    return [
        pytest.param(laid_over(text["base"], case), id=f"{name}: {case['says']}")
        for name in names
        for text in (yaml.safe_load((FOLDER / f"{name}.yaml").read_text()),)
        for case in text["cases"]
    ]


def laid_over(base: Any, change: Any) -> Any:
    """Lay one tree of mappings over another; what isn't a mapping is replaced."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return {key: laid_over(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}
