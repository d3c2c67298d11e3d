"""One module for each surface; `TARGETS` has them all."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

NAMES = ("jobs", "reports", "results", "archives", "weights", "listings", "answers", "logs", "indexes")
"""In the order of issue 10's list of surfaces."""


def load(name: str) -> Target:
    """Import a target: some need libraries that take seconds to load."""
    target: Target = import_module(f"tests.fuzz.targets.{name}").TARGET
    return target
