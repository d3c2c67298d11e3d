"""One module for each surface; `TARGETS` has them all."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

NAMES = ("jobs", "reports", "results", "archives", "weights", "listings", "answers", "logs", "indexes")
"""In the order of the list in issue 10."""


def load(name: str) -> Target:
    """Import a target when it is used: some need libraries that take seconds to load."""
    target: Target = import_module(f"tests.fuzz.targets.{name}").TARGET
    return target
