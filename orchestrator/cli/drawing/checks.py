"""Draws the checks of a job's data: in a plan, and while they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.core.values.data_check import DataCheck


def check_lines(checks: Sequence[DataCheck]) -> list[str]:
    """Describe checks in a plan, each with its whole command: the user's yes is about it."""
    return [f"this computer runs first, after your yes: {check.shown} ({_whose(check)})" for check in checks]


def _whose(check: DataCheck) -> str:
    if check.bundled:
        return f"kedge's own check of the data, in {check.folder}"
    return f"chosen by the job file; it runs as you, in {check.folder}"


def checks_as_data(checks: Sequence[DataCheck]) -> list[dict[str, Any]]:
    """Return checks as JSON-ready data."""
    return [
        {"command": list(check.command), "runs": list(check.runs), "folder": check.folder, "bundled": check.bundled}
        for check in checks
    ]


def show_on(*, stderr: bool) -> Callable[[str], None]:
    """Return what shows a check's output as it comes, without what a terminal would obey."""

    def show(text: str) -> None:
        stream = sys.stderr if stderr else sys.stdout
        stream.write(text)
        stream.flush()

    return show
