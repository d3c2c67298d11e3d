"""Prints what an export wrote, the next steps, and what it doesn't carry over."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.export.model import Export
from orchestrator.adapters.export.steps import COMMAND
from orchestrator.cli.terminal.console import make_console, print_folded


def print_export(export: Export, folder: Path) -> None:
    """Print it. Commands aren't wrapped, so that they can be copied."""
    console = make_console(stderr=False)
    console.print(
        f"{export.job.name} for {export.target.label} is in {folder}: {len(export.files)} files", markup=False
    )
    console.print("\nNext, in that folder (README.md has the same):", markup=False)
    for step in export.steps:
        if step.startswith(COMMAND):
            console.print(f"  {step}", markup=False, soft_wrap=True)
        else:
            print_folded(console, f"  {step}")
    console.print("\nNot carried over:", markup=False)
    for sentence in export.not_carried:
        print_folded(console, f"! {sentence}")
